#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

#include "quern/dtype.h"
#include "quern/tensor_view.h"

namespace quern::bench {

/// Zeroed memory on a page boundary, so that the alignment of a run is always the same; in huge
/// pages where they fit, as the library's packed weights are. The peer's weights are here too, and
/// 4 KiB pages cost a decode row up to a fifth of its bandwidth (NOTES.md).
class Buffer {
 public:
  explicit Buffer(size_t bytes) : bytes_(bytes) {
    constexpr size_t kHugePage = size_t{2} << 20;
    const size_t rounded = (bytes + 4096) / 4096 * 4096;
    const bool huge = bytes >= kHugePage;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(huge ? kHugePage : 4096, rounded)));
    if (!data_) throw std::bad_alloc();
    if (huge) (void)madvise(data_.get(), rounded, MADV_HUGEPAGE);
    std::fill_n(data_.get(), rounded, std::byte{0});
  }
  std::byte* data() const { return data_.get(); }
  std::span<const std::byte> bytes() const { return {data_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte[], Free> data_;
  size_t bytes_ = 0;
};

/// An owned dense matrix.
struct Matrix {
  Matrix(int64_t row_count, int64_t col_count, DType type)
      : rows(row_count),
        cols(col_count),
        dtype(type),
        buffer(static_cast<size_t>(row_count * col_count) * size_of(type)) {}
  MatrixView view() const { return {buffer.data(), dtype, rows, cols, cols}; }
  MutableMatrixView mutable_view() const { return {buffer.data(), dtype, rows, cols, cols}; }
  VectorView vector() const { return {buffer.data(), dtype, rows * cols}; }

  int64_t rows;
  int64_t cols;
  DType dtype;
  Buffer buffer;
};

/// Fills with numbers that depend on `seed` only. f32 and bf16: uniform in [-scale, scale); s8, u8
/// and s32 (words of codes): every byte value, `scale` unused.
void fill(const Matrix& m, uint64_t seed, double scale = 1);
/// As fill, with magnitudes in [scale / 2, scale): what weight scales look like. f16 too.
void fill_positive(const Matrix& m, uint64_t seed, double scale);

/// The scale of weights that makes products of depth k of order one, whatever the depth.
double scale_for_depth(int64_t k);

/// Codes of 8-bit floats, any but NaNs and infinities: those would hide everything else.
Matrix finite_codes(int64_t rows, int64_t cols, DType type, uint64_t seed);

/// A new matrix with fill() done.
Matrix filled(int64_t rows, int64_t cols, DType dtype, uint64_t seed, double scale = 1);

/// Rows [row, row + rows) and columns [col, col + cols) of a view.
MatrixView part_of(const MatrixView& m, int64_t row, int64_t rows, int64_t col, int64_t cols);
VectorView part_of(const VectorView& v, int64_t begin, int64_t size);
/// The bias of columns [col, col + cols) out of one for `n` columns; with `two_parts` (gate, then
/// up) both parts of it, again one behind the other.
Matrix bias_columns(const Matrix& bias, int64_t col, int64_t cols, int64_t n, bool two_parts);

}  // namespace quern::bench
