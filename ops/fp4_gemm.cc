#include "quern/fp4_gemm.h"

#include <utility>

#include "jit/nvfp4_decode_avx512.h"
#include "jit/nvfp4_gemm_avx512.h"
#include "ops/fp4_packing.h"
#include "ops/grouped_families.h"
#include "ops/no_throw.h"
#include "ops/packed_gemm.h"
#include "ops/poison.h"

namespace quern::inline v0 {

// A nested type of an exported class would be exported with it.
struct [[gnu::visibility("hidden")]] Fp4Gemm::Impl {
  Fp4GemmDesc desc;
  PackedGemm gemm;
  jit::KernelHandle pack_kernel;

  Fp4PackSpec pack_spec() const noexcept {
    return {desc.n, desc.k, desc.format};
  }
  Status check_weights(const Fp4Weights& w, WeightPart part) const noexcept {
    return check_fp4_weights(w, pack_spec(), part);
  }
  Result<PackedWeights> pack(Span<const Fp4Weights> parts) const {
    return pack_fp4(*pack_kernel, gemm.pool(), pack_spec(), parts);
  }
};

namespace {

constexpr int kWeightBits = 4;
constexpr int kDecodedBits = 16;
constexpr int64_t kFewRowsInRegisters = kMostBlockRows;

Status check(const Fp4GemmDesc& desc) noexcept {
  if (const Status s = check_gemm_desc(desc, kMaxGroupedK); !s.ok()) return s;
  if (desc.format > Fp4Format::kMxfp4) {
    return Status(StatusCode::kInvalidArgument,
                  "desc.format ({0}) must be kNvfp4 (0) or kMxfp4 (1)",
                  static_cast<int64_t>(desc.format));
  }
  return {};
}

/// bf16_gemm's kernels on weights that were decoded to scratch.
GemmFamily decoded_family(IsaLevel level, const jit::IsaFeatures& features,
                          const Problem& problem) {
  GemmFamily family = bf16_family(level, DType::kBF16, /*scaled=*/true, features, problem);
  family.facts.weight_bits = kWeightBits;
  family.facts.decoded_bits = kDecodedBits;
  family.facts.block = kNvfp4Block;
  const jit::Nvfp4DecodeAvx512Config decode{kPoisonRegisters};
  family.decode_name = to_string(decode);
  family.generate_decode = [decode] { return generate(decode); };
  return family;
}

GemmFamily packed_family(const jit::IsaFeatures& features, const Problem& problem) {
  jit::Nvfp4GemmAvx512Config config;
  config.fma = !has_fast_bf16_dots(features);
  const jit::Nvfp4Registers registers = nvfp4_registers(config);
  GemmFacts facts;
  facts.k = problem.k;
  facts.a_bytes = config.fma ? 4 : 2;
  facts.weight_bits = kWeightBits;
  facts.block = kNvfp4Block;
  facts.panel_registers = registers.panel;
  facts.other_registers = registers.other;
  return make_family(config, IsaLevel::kAvx512, facts,
                     config.fma ? RowPreparation::kWiden : RowPreparation::kNone, features,
                     problem);
}

void use_nvfp4_families(const Fp4GemmDesc& desc, const ContextImpl& ctx, GemmSpec* spec) {
  GemmSpec& gemm = *spec;
  const bool amx = ctx.level >= IsaLevel::kAmx;
  gemm.families = {
      decoded_family(amx ? IsaLevel::kAmx : IsaLevel::kAvx512, ctx.features, gemm.problem)};
  // The bits of the avx512 families are those of each other, not those of tiles.
  if (amx && desc.invariance != Invariance::kFastest) return;
  gemm.few_rows = amx ? kFewRowsOnAvx512 : kFewRowsInRegisters;
  gemm.families.push_back(packed_family(ctx.features, gemm.problem));
}

/// As int4_gemm's weights without zero points.
void use_mxfp4_families(const Fp4GemmDesc& desc, const ContextImpl& ctx, PackedGemmSpec* spec) {
  const GroupLayout groups(desc.k, Fp4PackSpec{desc.n, desc.k, desc.format}.block());
  spec->weight_groups =
      WeightGroups{groups.group, groups.groups, DType::kBF16, Int4Zeros::kSymmetric, false};
  spec->row_groups.layout = groups;
  use_grouped_families(ctx, DType::kE2M1, {.scale = DType::kBF16}, desc.invariance, spec);
}

PackedGemmSpec make_spec(const Fp4GemmDesc& desc, const ContextImpl& ctx) {
  PackedGemmSpec spec;
  spec.gemm.problem = gemm_problem("fp4_gemm", desc);
  spec.gemm.problem.fp4 = desc.format;
  spec.layout = fp4_layout(desc.format, spec.gemm.gate_up());
  if (desc.format == Fp4Format::kNvfp4) {
    use_nvfp4_families(desc, ctx, &spec.gemm);
  } else {
    use_mxfp4_families(desc, ctx, &spec);
  }
  return spec;
}

}  // namespace

Result<Fp4Gemm> Fp4Gemm::create(const Context& ctx, const Fp4GemmDesc& desc) {
  return no_throw(kNoMemoryForPlan, [&]() -> Result<Fp4Gemm> {
    if (const Status s = ctx.status(); !s.ok()) return s;
    if (const Status s = check(desc); !s.ok()) return s;
    auto gemm = PackedGemm::create(ctx, make_spec(desc, ctx.impl()));
    if (!gemm.ok()) return gemm.status();
    auto pack_kernel = fp4_pack_kernel(ctx.impl());
    if (!pack_kernel.ok()) return pack_kernel.status();
    Fp4Gemm op;
    op.impl_ = std::make_shared<const Impl>(Impl{desc, std::move(*gemm), std::move(*pack_kernel)});
    return op;
  });
}

IsaLevel Fp4Gemm::isa() const noexcept {
  return impl_ == nullptr ? IsaLevel::kNone : impl_->gemm.isa();
}

const Fp4GemmDesc& Fp4Gemm::desc() const noexcept {
  static const Fp4GemmDesc kNone;
  return impl_ == nullptr ? kNone : impl_->desc;
}

Result<PackedWeights> Fp4Gemm::pack(const Fp4Weights& w) const {
  return pack_parts(impl_.get(), Span<const Fp4Weights>(&w, 1));
}

Result<PackedWeights> Fp4Gemm::pack_gate_up(const Fp4Weights& gate, const Fp4Weights& up) const {
  const Fp4Weights parts[] = {gate, up};
  return pack_parts(impl_.get(), Span<const Fp4Weights>(parts, 2));
}

size_t Fp4Gemm::scratch_bytes(int64_t max_m) const noexcept {
  return impl_ == nullptr ? 0 : impl_->gemm.scratch_bytes(max_m);
}

Status Fp4Gemm::run(const Fp4GemmArgs& args, Span<std::byte> scratch) const noexcept {
  if (impl_ == nullptr) return no_plan();
  return impl_->gemm.run({args.a, {}, {args.weights, args.c, args.bias, args.residual}}, scratch);
}

std::string Fp4Gemm::explain() const {
  return impl_ == nullptr ? no_plan().message() : impl_->gemm.explain();
}

}  // namespace quern::inline v0
