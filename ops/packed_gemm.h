#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "ops/dispatch.h"
#include "ops/gemm_families.h"
#include "ops/gemm_operands.h"
#include "ops/gemm_plan.h"
#include "ops/no_throw.h"
#include "ops/packed_weights_builder.h"
#include "ops/prepared_rows.h"
#include "ops/validate.h"
#include "quern/context.h"
#include "quern/packed_weights.h"
#include "quern/span.h"
#include "quern/status.h"
#include "quern/tensor_view.h"

namespace quern::inline v0 {

/// What tells one GEMM op over packed weights from another.
struct PackedGemmSpec {
  GemmSpec gemm;
  WeightLayout layout = WeightLayout::kNone;
  bool a_scaled = false;  ///< A is s8 already and a_scale is an operand
  /// Of weights with a scale for each group of K; `groups` 0: as many as g_idx makes.
  std::optional<WeightGroups> weight_groups;
  RowGroups row_groups;  ///< with the longest layout that such weights can have
};

/// One call's operands.
struct PackedGemmArgs {
  MatrixView a;
  VectorView a_scale;
  GemmOperands operands;
};

/// Which of an op's matrices an error is about.
enum class WeightPart : uint8_t { kOnly, kGate, kUp };

/// The frame of every GEMM op over packed weights: create, the choice between pack and
/// pack_gate_up, scratch, run in one or two phases, explain. An op adds its Desc, its checks of
/// weights, and the spec.
class PackedGemm {
 public:
  /// `ctx` is usable: its status() is ok.
  static Result<PackedGemm> create(const Context& ctx, PackedGemmSpec spec);

  IsaLevel isa() const noexcept { return spec().problem.isa; }
  const GemmSpec& spec() const noexcept { return plan_.spec(); }
  ThreadPool& pool() const noexcept { return ctx_.pool(); }
  /// Whether `parts` matrices are what this plan packs: one, or gate and up.
  Status check_parts(size_t parts) const noexcept;
  size_t scratch_bytes(int64_t max_m) const noexcept;
  Status run(const PackedGemmArgs& args, Span<std::byte> scratch) const noexcept;
  std::string explain() const;

 private:
  PackedGemm(Context ctx, PackedGemmSpec spec, Dispatch dispatch, GemmPlan plan,
             jit::KernelHandle quantize)
      : ctx_(std::move(ctx)),
        layout_(spec.layout),
        a_scaled_(spec.a_scaled),
        weight_groups_(spec.weight_groups),
        row_groups_(spec.row_groups),
        dispatch_(std::move(dispatch)),
        plan_(std::move(plan)),
        quantize_(std::move(quantize)) {}

  GemmShape shape(int64_t m) const noexcept;
  int64_t max_rows() const noexcept;
  /// For rows of A `row_step` bytes apart.
  PreparedRows prepared_rows(int64_t m, int64_t row_step, const RowGroups& groups,
                             const ThreadPool& pool) const noexcept;
  Status check_groups(const PackedWeights& weights) const noexcept;
  Status check_args(const PackedGemmArgs& args) const noexcept;
  /// Returns how many threads computed.
  int run_checked(const PackedGemmArgs& args, Span<std::byte> scratch) const noexcept;

  Context ctx_;
  WeightLayout layout_;
  bool a_scaled_;
  std::optional<WeightGroups> weight_groups_;
  RowGroups row_groups_;
  Dispatch dispatch_;
  GemmPlan plan_;
  jit::KernelHandle quantize_;  ///< null unless rows are quantized
};

/// The fields that every GEMM Desc has.
template <typename Desc>
Status check_gemm_desc(const Desc& desc, int64_t max_k) noexcept {
  if (const Status s = check_count(desc.n, "desc.n", kMaxExtent); !s.ok()) return s;
  if (const Status s = check_count(desc.k, "desc.k", max_k); !s.ok()) return s;
  if (const Status s = check_dtype(desc.c, "desc.c", {DType::kBF16, DType::kF32}); !s.ok())
    return s;
  return check_enums(desc.epilogue, desc.invariance);
}

/// The part of the Problem that every GEMM Desc has.
template <typename Desc>
Problem gemm_problem(const char* op, const Desc& desc) {
  Problem problem;
  problem.op = op;
  problem.n = desc.n;
  problem.k = desc.k;
  problem.c = desc.c;
  problem.epilogue = desc.epilogue;
  return problem;
}

/// Columns that share a scale, as a Problem names them: 0 for all, however a Desc says so, because
/// one plan has one name and one tuning key.
inline int64_t named_block(int64_t block, int64_t columns) noexcept {
  return block < 0 || block >= columns ? 0 : block;
}

/// pack() and pack_gate_up() of an op whose Impl has `gemm`, `check_weights(weights, part)` and
/// `pack(parts, options...)`.
template <typename Impl, typename Weights, typename... Options>
Result<PackedWeights> pack_parts(const Impl* impl, Span<const Weights> parts,
                                 const Options&... options) {
  if (impl == nullptr) return no_plan();
  if (const Status s = impl->gemm.check_parts(parts.size()); !s.ok()) return s;
  for (size_t i = 0; i < parts.size(); ++i) {
    const WeightPart part = parts.size() == 1 ? WeightPart::kOnly
                            : i == 0          ? WeightPart::kGate
                                              : WeightPart::kUp;
    if (const Status s = impl->check_weights(parts[i], part); !s.ok()) return s;
  }
  return no_throw("no memory for packed weights", [&] { return impl->pack(parts, options...); });
}

}  // namespace quern::inline v0
