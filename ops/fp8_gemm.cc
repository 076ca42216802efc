#include "quern/fp8_gemm.h"

#include <utility>

#include "jit/gemm_config.h"
#include "ops/fp8_packing.h"
#include "ops/grouped_families.h"
#include "ops/no_throw.h"
#include "ops/packed_gemm.h"

namespace quern::inline v0 {

// A nested type of an exported class would be exported with it.
struct [[gnu::visibility("hidden")]] Fp8Gemm::Impl {
  Fp8GemmDesc desc;
  PackedGemm gemm;

  Fp8PackSpec pack_spec() const noexcept {
    return {desc.n, desc.k, desc.weights, desc.block_n, desc.block_k};
  }
  Status check_weights(const Fp8Weights& w, WeightPart part) const noexcept {
    return check_fp8_weights(w, pack_spec(), part);
  }
  Result<PackedWeights> pack(Span<const Fp8Weights> parts) const {
    return pack_fp8(gemm.pool(), pack_spec(), parts);
  }
};

namespace {

Status check_block(int64_t block, const char* text) noexcept {
  if (block == -1 || block >= 1) return {};
  return Status(StatusCode::kInvalidArgument, text, block);
}

Status check(const Fp8GemmDesc& desc) noexcept {
  if (const Status s = check_gemm_desc(desc, kMaxGroupedK); !s.ok()) return s;
  const Status codes = check_dtype(desc.weights, "desc.weights", {DType::kE4M3, DType::kE5M2});
  if (!codes.ok()) return codes;
  const Status columns =
      check_block(desc.block_n, "desc.block_n ({0}) must be at least 1, or -1 for all of n");
  if (!columns.ok()) return columns;
  return check_block(desc.block_k, "desc.block_k ({0}) must be at least 1, or -1 for all of k");
}

PackedGemmSpec make_spec(const Fp8GemmDesc& desc) {
  PackedGemmSpec spec;
  Problem& problem = spec.gemm.problem = gemm_problem("fp8_gemm", desc);
  problem.weights = desc.weights;
  problem.block_n = named_block(desc.block_n, desc.n);
  problem.block_k = named_block(desc.block_k, desc.k);
  spec.layout = fp8_layout(desc.weights, spec.gemm.gate_up());
  const GroupLayout groups(desc.k, desc.block_k);
  spec.weight_groups =
      WeightGroups{groups.group, groups.groups, DType::kF32, Int4Zeros::kSymmetric, false};
  spec.row_groups.layout = groups;
  return spec;
}

}  // namespace

Result<Fp8Gemm> Fp8Gemm::create(const Context& ctx, const Fp8GemmDesc& desc) {
  return no_throw(kNoMemoryForPlan, [&]() -> Result<Fp8Gemm> {
    if (const Status s = ctx.status(); !s.ok()) return s;
    if (const Status s = check(desc); !s.ok()) return s;
    PackedGemmSpec spec = make_spec(desc);
    use_grouped_families(ctx.impl(), desc.weights, {.scale = DType::kF32}, desc.invariance, &spec);
    auto gemm = PackedGemm::create(ctx, std::move(spec));
    if (!gemm.ok()) return gemm.status();
    Fp8Gemm op;
    op.impl_ = std::make_shared<const Impl>(Impl{desc, std::move(*gemm)});
    return op;
  });
}

IsaLevel Fp8Gemm::isa() const noexcept {
  return impl_ == nullptr ? IsaLevel::kNone : impl_->gemm.isa();
}

const Fp8GemmDesc& Fp8Gemm::desc() const noexcept {
  static const Fp8GemmDesc kNone;
  return impl_ == nullptr ? kNone : impl_->desc;
}

Result<PackedWeights> Fp8Gemm::pack(const Fp8Weights& w) const {
  return pack_parts(impl_.get(), Span<const Fp8Weights>(&w, 1));
}

Result<PackedWeights> Fp8Gemm::pack_gate_up(const Fp8Weights& gate, const Fp8Weights& up) const {
  const Fp8Weights parts[] = {gate, up};
  return pack_parts(impl_.get(), Span<const Fp8Weights>(parts, 2));
}

size_t Fp8Gemm::scratch_bytes(int64_t max_m) const noexcept {
  return impl_ == nullptr ? 0 : impl_->gemm.scratch_bytes(max_m);
}

Status Fp8Gemm::run(const Fp8GemmArgs& args, Span<std::byte> scratch) const noexcept {
  if (impl_ == nullptr) return no_plan();
  return impl_->gemm.run({args.a, {}, {args.weights, args.c, args.bias, args.residual}}, scratch);
}

std::string Fp8Gemm::explain() const {
  return impl_ == nullptr ? no_plan().message() : impl_->gemm.explain();
}

}  // namespace quern::inline v0
