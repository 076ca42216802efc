#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/gemm_plan.h"
#include "quern/epilogue.h"
#include "quern/packed_weights.h"
#include "quern/span.h"
#include "quern/status.h"
#include "quern/tensor_view.h"

namespace quern::inline v0 {

/// The operands that every GEMM-shaped op has beside A.
struct GemmOperands {
  const PackedWeights* weights = nullptr;
  MutableMatrixView c;
  VectorView bias;
  MatrixView residual;
};

/// What the plan expects of them.
struct GemmShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  DType c = DType::kBF16;
  WeightLayout layout = WeightLayout::kNone;
  Epilogue epilogue;
};

/// The weights are there, and what a plan of that layout, n and k packs.
Status check_weights(const PackedWeights* weights, WeightLayout layout, int64_t n,
                     int64_t k) noexcept;

/// The first rule that is broken. An operand that the epilogue does not use must be empty: passing
/// one is a misunderstanding, not something to ignore.
Status check_operands(const GemmOperands& operands, const GemmShape& shape) noexcept;

/// C and scratch are written while the rest is read, by any thread in any order, so they overlap
/// nothing; only the residual may be C itself. The operands have been checked one by one.
Status check_memory(const GemmOperands& operands, const MatrixView& a, const VectorView& a_scale,
                    Span<std::byte> scratch) noexcept;

/// What an op that create() never made (default-constructed or moved from) answers.
Status no_plan() noexcept;

/// The part of a run that follows from checked operands: C, bias, residual, weights.
GemmRun make_run(const GemmPlan& plan, const GemmOperands& operands,
                 const GemmShape& shape) noexcept;

Status check_scratch(Span<std::byte> scratch, size_t needed) noexcept;

/// First 64-byte boundary in scratch; scratch_bytes() includes the slack.
std::byte* align_scratch(Span<std::byte> scratch) noexcept;
constexpr int64_t kScratchAlign = 64;

/// Whether the problem is done sooner on the calling thread than the pool can fork and join.
bool runs_serially(const GemmFacts& facts, int64_t m, int64_t n) noexcept;

}  // namespace quern::inline v0
