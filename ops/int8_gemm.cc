#include "quern/int8_gemm.h"

#include <utility>

#include "jit/int8_gemm_amx.h"
#include "jit/int8_gemm_avx512.h"
#include "ops/no_throw.h"
#include "ops/packed_gemm.h"
#include "ops/weight_packing.h"

namespace quern::inline v0 {

// A nested type of an exported class would be exported with it.
struct [[gnu::visibility("hidden")]] Int8Gemm::Impl {
  Int8GemmDesc desc;
  PackedGemm gemm;

  Status check_weights(const Int8Weights& w, WeightPart part) const noexcept;
  Result<PackedWeights> pack(Span<const Int8Weights> parts) const {
    return pack_int8(gemm.pool(), parts);
  }
};

namespace {

// |sum of k products of u8 and s8| < 2^31 after the correction for every k below this.
constexpr int64_t kFirstWideK = 131072;
// The sum of k signed bytes must fit 32 bits: -128 * 2^24 = -2^31.
constexpr int64_t kMaxK = int64_t{1} << 24;

Status check(const Int8GemmDesc& desc) noexcept {
  if (const Status s = check_gemm_desc(desc, kMaxK); !s.ok()) return s;
  switch (desc.activations) {
    case Int8Activations::kDynamicS8:
      return check_dtype(desc.a, "desc.a", {DType::kBF16, DType::kF32});
    case Int8Activations::kS8:
      return check_dtype(desc.a, "desc.a", {DType::kS8});
    case Int8Activations::kBF16:
      return check_dtype(desc.a, "desc.a", {DType::kBF16});
  }
  return Status(StatusCode::kInvalidArgument,
                "desc.activations ({0}) must be kDynamicS8 (0), kS8 (1) or kBF16 (2)",
                static_cast<int64_t>(desc.activations));
}

/// Sums of integers are exact and the epilogue is one sequence, so that both families give the same
/// bits and M may choose.
void use_int8_families(const ContextImpl& ctx, GemmSpec* spec) {
  const Problem& problem = spec->problem;
  const bool wide = problem.k >= kFirstWideK;
  GemmFacts facts{.k = problem.k, .a_bytes = 1, .weight_bits = 8, .wide = wide};
  const auto add = [&](const auto& config, IsaLevel level) {
    spec->families.push_back(
        make_family(config, level, facts, RowPreparation::kQuantize, ctx.features, problem));
  };
  if (ctx.level >= IsaLevel::kAmx) {
    facts.row_step = 16;
    add(jit::Int8GemmAmxConfig{{}, wide}, IsaLevel::kAmx);
    facts.row_step = 1;
    spec->few_rows = kFewRowsOnAvx512;
  }
  add(jit::Int8GemmAvx512Config{{}, wide}, IsaLevel::kAvx512);
}

PackedGemmSpec make_spec(const Int8GemmDesc& desc, const ContextImpl& ctx) {
  PackedGemmSpec spec;
  GemmSpec& gemm = spec.gemm;
  gemm.problem = gemm_problem("int8_gemm", desc);
  gemm.problem.a = desc.a;
  gemm.problem.activations = desc.activations;
  if (desc.activations == Int8Activations::kBF16) {
    use_bf16_families(DType::kU8, ctx, desc.invariance, &gemm);
  } else {
    use_int8_families(ctx, &gemm);
    spec.a_scaled = desc.activations == Int8Activations::kS8;
  }
  spec.layout = gemm.gate_up() ? WeightLayout::kU8Vnni4N16GateUp : WeightLayout::kU8Vnni4N16;
  return spec;
}

}  // namespace

Result<Int8Gemm> Int8Gemm::create(const Context& ctx, const Int8GemmDesc& desc) {
  return no_throw(kNoMemoryForPlan, [&]() -> Result<Int8Gemm> {
    if (const Status s = ctx.status(); !s.ok()) return s;
    if (const Status s = check(desc); !s.ok()) return s;
    auto gemm = PackedGemm::create(ctx, make_spec(desc, ctx.impl()));
    if (!gemm.ok()) return gemm.status();
    Int8Gemm op;
    op.impl_ = std::make_shared<const Impl>(Impl{desc, std::move(*gemm)});
    return op;
  });
}

IsaLevel Int8Gemm::isa() const noexcept {
  return impl_ == nullptr ? IsaLevel::kNone : impl_->gemm.isa();
}

const Int8GemmDesc& Int8Gemm::desc() const noexcept {
  static const Int8GemmDesc kNone;
  return impl_ == nullptr ? kNone : impl_->desc;
}

Status Int8Gemm::Impl::check_weights(const Int8Weights& w, WeightPart part) const noexcept {
  constexpr const char* kCodes[] = {"w.codes", "gate.codes", "up.codes"};
  constexpr const char* kScales[] = {"w.scale", "gate.scale", "up.scale"};
  constexpr const char* kScaleTypes[] = {"w.scale.dtype", "gate.scale.dtype", "up.scale.dtype"};
  const auto i = static_cast<size_t>(part);
  const DType type = w.scale.dtype;
  if (const Status s = check_matrix(w.codes, kCodes[i], DType::kS8, desc.n, desc.k); !s.ok()) {
    return s;
  }
  const Status known = check_dtype(type, kScaleTypes[i], {DType::kF32, DType::kBF16, DType::kF16});
  return known.ok() ? check_vector(w.scale, kScales[i], type, desc.n) : known;
}

Result<PackedWeights> Int8Gemm::pack(const Int8Weights& w) const {
  return pack_parts(impl_.get(), Span<const Int8Weights>(&w, 1));
}

Result<PackedWeights> Int8Gemm::pack_gate_up(const Int8Weights& gate, const Int8Weights& up) const {
  const Int8Weights parts[] = {gate, up};
  return pack_parts(impl_.get(), Span<const Int8Weights>(parts, 2));
}

size_t Int8Gemm::scratch_bytes(int64_t max_m) const noexcept {
  return impl_ == nullptr ? 0 : impl_->gemm.scratch_bytes(max_m);
}

Status Int8Gemm::run(const Int8GemmArgs& args, Span<std::byte> scratch) const noexcept {
  if (impl_ == nullptr) return no_plan();
  return impl_->gemm.run({args.a, args.a_scale, {args.weights, args.c, args.bias, args.residual}},
                         scratch);
}

std::string Int8Gemm::explain() const {
  return impl_ == nullptr ? no_plan().message() : impl_->gemm.explain();
}

}  // namespace quern::inline v0
