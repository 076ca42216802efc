#pragma once

#include <cstddef>
#include <cstdint>

#include "jit/kernel.h"
#include "ops/blocking.h"
#include "quern/tensor_view.h"

namespace quern::inline v0 {

/// What happens to the rows of A before the micro-kernel reads them.
enum class RowPreparation : uint8_t {
  kNone,      ///< read as they come
  kQuantize,  ///< to s8, with a scale and a sum each
  kWiden,     ///< bf16 to f32, for kernels that multiply with FMAs
  kSpread,    ///< copied to where they do not share cache sets: see meet_in_l1()
};

/// Whether rows this many bytes apart push each other out of L1 while one register block reads them
/// all: at a multiple of its way's 4 KiB all rows lie in one set, which holds 12 lines (8 on older
/// cores), one of them the weights'. Each line is then read from L2 for every element in it.
bool meet_in_l1(int64_t row_step, int64_t rows) noexcept;

/// Scratch for the prepared rows of one call, zero-padded behind K. For a handful of rows every
/// thread makes its own copy, which costs less than a barrier.
class PreparedRows {
 public:
  static constexpr int kPad = 64;  ///< s8 rows are zero-filled to a whole tile row, for every level
  static constexpr int64_t kRowsForEachThread = 4;

  PreparedRows() = default;
  PreparedRows(RowPreparation kind, int64_t rows, int64_t k, int threads) noexcept;

  int64_t bytes() const noexcept { return copies_ * copy_bytes(); }
  /// bytes() of it, 64-byte aligned.
  void use(std::byte* memory) noexcept { memory_ = memory; }
  /// Each thread prepares all rows for itself.
  bool each_thread() const noexcept { return copies_ > 1; }

  const std::byte* rows(int copy) const noexcept { return memory_ + copy * copy_bytes(); }
  int64_t stride() const noexcept { return stride_; }  ///< bytes
  /// Of quantized rows.
  const float* scale(int copy) const noexcept {
    return reinterpret_cast<const float*>(rows(copy) + m_ * stride_);
  }
  const int32_t* sum(int copy) const noexcept {
    return reinterpret_cast<const int32_t*>(rows(copy) + m_ * stride_ + number_bytes());
  }

  /// Prepares `which` rows of `a` in a copy. `quantizer` is null unless the kind is kQuantize.
  void prepare(const jit::Kernel* quantizer, const MatrixView& a, Range which,
               int copy) const noexcept;

 private:
  void quantize(const jit::Kernel& kernel, const MatrixView& a, Range which,
                std::byte* to) const noexcept;
  void widen(const MatrixView& a, Range which, std::byte* to) const noexcept;
  void spread(const MatrixView& a, Range which, std::byte* to) const noexcept;
  int64_t number_bytes() const noexcept { return (m_ * 4 + 63) / 64 * 64; }
  int64_t copy_bytes() const noexcept {
    return m_ * stride_ + (kind_ == RowPreparation::kQuantize ? 2 * number_bytes() : 0);
  }

  RowPreparation kind_ = RowPreparation::kNone;
  int64_t m_ = 0;
  int64_t stride_ = 0;
  int copies_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace quern::inline v0
