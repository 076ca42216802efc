#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/gemm_plan.h"
#include "ops/panel_packing.h"
#include "quern/thread_pool.h"

namespace quern::inline v0 {

/// One operand of a batch: the first matrix and the bytes to the next, 0 where all are the same.
template <typename Pointer>
struct BatchOf {
  Pointer first = nullptr;
  int64_t step = 0;

  Pointer at(int64_t matrix) const noexcept { return step == 0 ? first : first + matrix * step; }
};

/// Scratch of one thread; a plan's need for some m.
struct BmmScratch {
  int64_t partial_bytes = 0;  ///< tiles and partial sums
  int64_t rows_at_once = 0;   ///< rows of A that are prepared together
  int64_t row_bytes = 0;      ///< for them
  int64_t panel_bytes = 0;    ///< for panels of a plain B; 0: B is packed
  int64_t panels_at_once = 0;

  int64_t bytes() const noexcept { return partial_bytes + row_bytes + panel_bytes; }
};

/// The compiled-in blocking, which knows that matrices are small and follow each other.
GemmBlocking bmm_blocking(const GemmFacts& facts, int64_t m) noexcept;

/// Largest m for what a plan needs: `plain` says whether B is packed by the run.
BmmScratch bmm_scratch(const GemmPlan& plan, int64_t max_m, bool plain) noexcept;

/// One call, its operands checked. m and n are at least 1, batch too.
struct BmmCall {
  const GemmPlan* plan = nullptr;
  int64_t batch = 0;
  int64_t m = 0;
  MatrixView a;  ///< the first
  int64_t a_step = 0;
  GemmRun run;                       ///< what all products share
  BatchOf<const std::byte*> panels;  ///< of a packed B
  BatchOf<const float*> col_scale;
  PanelSource b;  ///< the first matrix of a plain B
  int64_t b_step = 0;
  BatchOf<std::byte*> c;
  BmmScratch scratch;
  RowPreparation rows = RowPreparation::kNone;  ///< what run_bmm() finds is to be done with A
  std::byte* memory = nullptr;  ///< scratch.bytes() for each thread, 64-byte aligned

  bool plain() const noexcept { return scratch.panel_bytes != 0; }
};

/// Computes it on the pool, as one phase. The panels of all matrices stand in one row, of which
/// each thread gets a part of fixed bounds: whole matrices where there are enough of them, and the
/// same ones in every call.
void run_bmm(ThreadPool& pool, BmmCall* call) noexcept;

}  // namespace quern::inline v0
