#pragma once

#include <cstddef>
#include <cstdint>

#include "jit/kernel.h"
#include "ops/blocking.h"
#include "quern/tensor_view.h"

namespace quern::inline v0 {

/// Scratch for the quantized rows of one call: s8 rows, then a scale and a sum for each. For a
/// handful of rows every thread makes its own copy, which costs less than a barrier.
struct QuantizedRows {
  static constexpr int kPad = 64;  ///< rows are zero-filled to a whole tile row, for every level
  static constexpr int64_t kRowsForEachThread = 4;

  int64_t m = 0;
  int64_t q_stride = 0;  ///< bytes
  int copies = 0;        ///< 0: this op does not quantize
  std::byte* memory = nullptr;

  QuantizedRows() = default;
  /// threads 0: no rows at all.
  QuantizedRows(int64_t rows, int64_t k, int threads) noexcept;

  int64_t bytes() const noexcept { return copies * copy_bytes(); }
  const std::byte* q(int copy) const noexcept { return memory + copy * copy_bytes(); }
  const float* scale(int copy) const noexcept {
    return reinterpret_cast<const float*>(memory + copy * copy_bytes() + m * q_stride);
  }
  const int32_t* sum(int copy) const noexcept {
    return reinterpret_cast<const int32_t*>(memory + copy * copy_bytes() + m * q_stride +
                                            number_bytes());
  }

  /// Quantizes (or, with s8, copies and sums) rows of `a` into a copy.
  void quantize(const jit::Kernel& kernel, const MatrixView& a, Range rows,
                int copy) const noexcept;

 private:
  int64_t number_bytes() const noexcept { return (m * 4 + 63) / 64 * 64; }
  int64_t copy_bytes() const noexcept { return m * q_stride + 2 * number_bytes(); }
};

}  // namespace quern::inline v0
