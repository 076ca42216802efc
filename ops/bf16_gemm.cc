#include "quern/bf16_gemm.h"

#include <utility>

#include "ops/no_throw.h"
#include "ops/packed_gemm.h"
#include "ops/weight_packing.h"

namespace quern::inline v0 {

// A nested type of an exported class would be exported with it.
struct [[gnu::visibility("hidden")]] Bf16Gemm::Impl {
  Bf16GemmDesc desc;
  PackedGemm gemm;

  Status check_weights(const MatrixView& w, WeightPart part) const noexcept {
    constexpr const char* kNames[] = {"w", "gate", "up"};
    return check_matrix(w, kNames[static_cast<int>(part)], DType::kBF16, desc.n, desc.k);
  }
  Result<PackedWeights> pack(Span<const MatrixView> parts) const {
    return pack_bf16(gemm.pool(), parts);
  }
};

namespace {

PackedGemmSpec make_spec(const Bf16GemmDesc& desc, const ContextImpl& ctx) {
  PackedGemmSpec spec;
  spec.gemm.problem = gemm_problem("bf16_gemm", desc);
  use_bf16_families(DType::kBF16, ctx, desc.invariance, &spec.gemm);
  spec.layout =
      spec.gemm.gate_up() ? WeightLayout::kBf16Vnni2N16GateUp : WeightLayout::kBf16Vnni2N16;
  return spec;
}

}  // namespace

Result<Bf16Gemm> Bf16Gemm::create(const Context& ctx, const Bf16GemmDesc& desc) {
  return no_throw(kNoMemoryForPlan, [&]() -> Result<Bf16Gemm> {
    if (const Status s = ctx.status(); !s.ok()) return s;
    if (const Status s = check_gemm_desc(desc, kMaxExtent); !s.ok()) return s;
    auto gemm = PackedGemm::create(ctx, make_spec(desc, ctx.impl()));
    if (!gemm.ok()) return gemm.status();
    Bf16Gemm op;
    op.impl_ = std::make_shared<const Impl>(Impl{desc, std::move(*gemm)});
    return op;
  });
}

IsaLevel Bf16Gemm::isa() const noexcept {
  return impl_ == nullptr ? IsaLevel::kNone : impl_->gemm.isa();
}

const Bf16GemmDesc& Bf16Gemm::desc() const noexcept {
  static const Bf16GemmDesc kNone;
  return impl_ == nullptr ? kNone : impl_->desc;
}

Result<PackedWeights> Bf16Gemm::pack(MatrixView w) const {
  return pack_parts(impl_.get(), Span<const MatrixView>(&w, 1));
}

Result<PackedWeights> Bf16Gemm::pack_gate_up(MatrixView gate, MatrixView up) const {
  const MatrixView parts[] = {gate, up};
  return pack_parts(impl_.get(), Span<const MatrixView>(parts, 2));
}

size_t Bf16Gemm::scratch_bytes(int64_t max_m) const noexcept {
  return impl_ == nullptr ? 0 : impl_->gemm.scratch_bytes(max_m);
}

Status Bf16Gemm::run(const Bf16GemmArgs& args, Span<std::byte> scratch) const noexcept {
  if (impl_ == nullptr) return no_plan();
  return impl_->gemm.run({args.a, {}, {args.weights, args.c, args.bias, args.residual}}, scratch);
}

std::string Bf16Gemm::explain() const {
  return impl_ == nullptr ? no_plan().message() : impl_->gemm.explain();
}

}  // namespace quern::inline v0
