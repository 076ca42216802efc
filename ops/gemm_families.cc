#include "ops/gemm_families.h"

#include "jit/bf16_gemm_amx.h"
#include "jit/bf16_gemm_avx512.h"
#include "jit/bf16_gemm_fma_avx512.h"
#include "ops/poison.h"

namespace quern::inline v0 {

jit::GemmConfig kernel_config(const Problem& problem, int mr, int nr, int prefetch,
                              bool bf16) noexcept {
  const Epilogue& e = problem.epilogue;
  const jit::GemmEpilogue epilogue{problem.c, e.bias, e.activation, e.residual};
  return {mr, nr, prefetch, kPoisonRegisters, epilogue, bf16};
}

namespace {

/// As kernels for b want it said.
bool by_vbmi(DType b, const jit::IsaFeatures& features) noexcept {
  return b != DType::kE4M3 || features.vbmi;
}

GemmFamily bf16_amx_family(DType b, bool scaled, const jit::IsaFeatures& features,
                           const Problem& problem) {
  const bool codes = b != DType::kBF16;
  const GemmFacts facts{
      .k = problem.k, .a_bytes = 2, .weight_bits = codes ? 8 : 16, .row_step = 16};
  return make_family(jit::Bf16GemmAmxConfig{{}, b, scaled, by_vbmi(b, features)}, IsaLevel::kAmx,
                     facts, RowPreparation::kNone, features, problem);
}

GemmFamily bf16_avx512_family(DType b, bool scaled, const jit::IsaFeatures& features,
                              const Problem& problem) {
  const bool codes = b != DType::kBF16, floats = b == DType::kE4M3;
  GemmFacts facts{.k = problem.k,
                  .a_bytes = 2,
                  .weight_bits = codes ? 8 : 16,
                  .panel_registers = codes ? 2 : 1,
                  .other_registers = floats  ? 1 + jit::kFloat8Registers
                                     : codes ? 4
                                             : 1};
  if (has_fast_bf16_dots(features)) {
    return make_family(jit::Bf16GemmAvx512Config{{}, b, scaled, by_vbmi(b, features)},
                       IsaLevel::kAvx512, facts, RowPreparation::kNone, features, problem);
  }
  facts.a_bytes = 4;
  facts.other_registers = floats ? 2 + jit::kFloat8Registers : codes ? 4 : 2;
  if (floats) facts.panel_registers = 3;
  return make_family(jit::Bf16GemmFmaAvx512Config{{}, b, scaled, by_vbmi(b, features)},
                     IsaLevel::kAvx512, facts, RowPreparation::kWiden, features, problem);
}

}  // namespace

GemmFamily bf16_family(IsaLevel level, DType b, bool scaled, const jit::IsaFeatures& features,
                       const Problem& problem) {
  return level == IsaLevel::kAmx ? bf16_amx_family(b, scaled, features, problem)
                                 : bf16_avx512_family(b, scaled, features, problem);
}

void use_bf16_families(DType b, const ContextImpl& ctx, Invariance invariance, GemmSpec* spec) {
  const auto family = [&](IsaLevel level) {
    return bf16_family(level, b, false, ctx.features, spec->problem);
  };
  if (ctx.level < IsaLevel::kAmx) {
    spec->families = {family(IsaLevel::kAvx512)};
    return;
  }
  spec->families = {family(IsaLevel::kAmx)};
  if (invariance == Invariance::kFastest) {
    spec->families.push_back(family(IsaLevel::kAvx512));
    spec->few_rows = kFewRowsOnAvx512;
  }
}

Result<PlannedGemm> plan_gemm(ContextImpl& ctx, GemmSpec spec, CreateReport* report) {
  Dispatch dispatch = choose_family(ctx, nullptr, spec.few_rows);
  if (const Status s = report->dispatched(dispatch); !s.ok()) return s;
  spec.problem = report->problem();
  auto plan = GemmPlan::create(ctx, std::move(spec));
  if (!plan.ok()) return report->failed(plan.status());
  return PlannedGemm{std::move(dispatch), std::move(*plan)};
}

}  // namespace quern::inline v0
