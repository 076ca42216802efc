#pragma once

#include <cstddef>
#include <cstdint>

#include "jit/kernel.h"
#include "ops/blocking.h"
#include "ops/group_layout.h"
#include "quern/tensor_view.h"

namespace quern::inline v0 {

/// What happens to the rows of A before the micro-kernel reads them.
enum class RowPreparation : uint8_t {
  kNone,      ///< read as they come
  kQuantize,  ///< to s8, with a scale and a sum each
  kWiden,     ///< bf16 to f32, for kernels that multiply with FMAs
  kSpread,    ///< copied to where they do not share cache sets: see meet_in_l1()
  kGather,    ///< copied in the order and with the padding of the weights' groups
};

/// What weights with a scale for each group of K ask of the rows.
struct RowGroups {
  /// The sum of a row over each group that zero points are multiplied with (GemmArgs::group_sum).
  enum class Sums : uint8_t { kNone, kTimesMinus8, kS32, kF32 };

  /// Of the weights; for sizes, the longest that they can have. No groups: nothing of all this.
  GroupLayout layout;
  const int32_t* order = nullptr;  ///< act_order: the column that stands at each depth, or -1
  bool ordered = false;            ///< there is an order, also where sizes alone are asked for
  Sums sums = Sums::kNone;

  /// Columns stand in the weights where they stand in A.
  bool in_place() const noexcept { return layout.dense() && !ordered; }
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
  PreparedRows(RowPreparation kind, int64_t rows, int64_t k, int threads,
               const RowGroups& groups = {}) noexcept;

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
  /// [groups][rows], where the groups have sums.
  const std::byte* group_sum(int copy) const noexcept {
    return rows(copy) + m_ * stride_ + scale_bytes();
  }
  int64_t group_sum_stride() const noexcept { return number_bytes(); }  ///< bytes

  /// Prepares `which` rows of `a` in a copy. `quantizer` is null unless the kind is kQuantize; with
  /// groups in place it exchanges bytes in quads.
  void prepare(const jit::Kernel* quantizer, const MatrixView& a, Range which,
               int copy) const noexcept;

 private:
  void quantize(const jit::Kernel& kernel, const MatrixView& a, Range which,
                std::byte* to) const noexcept;
  void widen(const MatrixView& a, Range which, std::byte* to) const noexcept;
  void spread(const MatrixView& a, Range which, std::byte* to) const noexcept;
  // With groups: grouped_rows.cc.
  void quantize_groups(const jit::Kernel& kernel, const MatrixView& a, Range which,
                       std::byte* to) const noexcept;
  void gather_quantized(int64_t row, std::byte* to) const noexcept;
  void gather(const MatrixView& a, Range which, std::byte* to) const noexcept;
  void gather_row(const std::byte* from, std::byte* to) const noexcept;
  void sum_groups(const std::byte* from, int64_t row, std::byte* to) const noexcept;
  void store_sum(std::byte* to, int64_t group, int64_t row, int64_t sum) const noexcept;
  /// take(place in the group, column of K) for each column of a packed group, and how many it has:
  /// the rest of its places is padding.
  template <typename Take>
  int64_t for_columns(int64_t group, const Take& take) const noexcept;
  /// What the quantizing kernel leaves for each row, before it is put where it belongs.
  std::byte* raw(std::byte* copy) const noexcept;
  int64_t raw_row_bytes() const noexcept;
  int64_t sum_bytes() const noexcept;

  int64_t number_bytes() const noexcept { return (m_ * 4 + 63) / 64 * 64; }
  int64_t scale_bytes() const noexcept {
    return kind_ == RowPreparation::kQuantize ? number_bytes() : 0;
  }
  int64_t copy_bytes() const noexcept {
    if (grouped()) return m_ * stride_ + scale_bytes() + sum_bytes() + m_ * raw_row_bytes();
    return m_ * stride_ + (kind_ == RowPreparation::kQuantize ? 2 * number_bytes() : 0);
  }
  bool grouped() const noexcept { return groups_.layout.groups > 0; }

  RowPreparation kind_ = RowPreparation::kNone;
  int64_t m_ = 0;
  int64_t k_ = 0;
  int64_t stride_ = 0;
  RowGroups groups_;
  int copies_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace quern::inline v0
