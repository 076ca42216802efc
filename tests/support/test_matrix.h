#pragma once

#include <cstdint>
#include <vector>

#include "quern/tensor_view.h"
#include "tests/support/guard_buffer.h"

namespace quern::test {

/// Where test operands lie: always between guard pages, against one of them or `offset` bytes away.
struct Placement {
  Flush flush = Flush::kEnd;
  size_t offset = 0;
};

/// A matrix (or, with one row, a vector) of any element type between guard pages. Rows are
/// `cols + pad` elements apart; the last one ends with its last element, so that reading its gap
/// faults. Gaps hold a pattern that is NaN in every float type. Nothing is aligned, so elements are
/// copied in and out.
class TestMatrix {
 public:
  TestMatrix() = default;
  TestMatrix(DType dtype, int64_t rows, int64_t cols, int64_t pad = 0, Placement place = {});

  DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

  /// Rounded to the element type where it is a float.
  void set(int64_t row, int64_t col, double value);
  /// The low bits of `bits` as they are, for signalling NaNs and single codes.
  void set_bits(int64_t row, int64_t col, uint32_t bits);
  double get(int64_t row, int64_t col) const;
  uint32_t bits(int64_t row, int64_t col) const;
  void set_row(int64_t row, double value);
  void set_col(int64_t col, double value);
  void set_all(double value);

  MatrixView view() const { return {buffer_.data(), dtype_, rows_, cols_, stride_}; }
  MutableMatrixView mutable_view() { return {buffer_.data(), dtype_, rows_, cols_, stride_}; }
  /// Needs one row.
  VectorView vector() const { return {buffer_.data(), dtype_, cols_}; }
  MutableVectorView mutable_vector() { return {buffer_.data(), dtype_, cols_}; }

  GuardBuffer& buffer() { return buffer_; }
  /// Gaps between rows and the slack up to the guard pages are as they were.
  bool surroundings_intact() const;

 private:
  unsigned char* at(int64_t row, int64_t col) const;

  DType dtype_ = DType::kF32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  int64_t stride_ = 0;
  GuardBuffer buffer_;
};

/// The elements of `m` without gaps, for comparing two outputs whose layouts differ.
std::vector<uint32_t> element_bits(const MatrixView& m);

}  // namespace quern::test
