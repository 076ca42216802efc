#pragma once

#include <utility>

#include "jit/gemm_config.h"
#include "ops/context_impl.h"
#include "ops/dispatch.h"
#include "ops/gemm_plan.h"
#include "ops/run_report.h"
#include "quern/dtype.h"
#include "quern/epilogue.h"
#include "quern/problem.h"
#include "quern/status.h"

namespace quern::inline v0 {

/// The part of a kernel's Config that the plan decides.
jit::GemmConfig kernel_config(const Problem& problem, int mr, int nr, int prefetch,
                              bool bf16) noexcept;

/// Dot products of bf16 rather than two FMAs in their place.
inline bool has_fast_bf16_dots(const jit::IsaFeatures& features) noexcept {
  return features.bf16 && !features.slow_bf16_dots;
}

/// Rows up to which an avx512 kernel may stand in for an amx one: so few are multiplied as fast as
/// the weights arrive.
constexpr int64_t kFewRowsOnAvx512 = 4;

/// A family of the kernels that `config` holds the own fields of; the rest of each kernel's Config
/// follows from the problem, which must be complete but for isa, and from the machine.
template <typename Config>
GemmFamily make_family(const Config& config, IsaLevel level, const GemmFacts& facts,
                       RowPreparation rows, const jit::IsaFeatures& features,
                       const Problem& problem) {
  const auto with_shape = [config, bf16 = features.bf16, problem](int mr, int nr, int prefetch) {
    Config c = config;
    static_cast<jit::GemmConfig&>(c) = kernel_config(problem, mr, nr, prefetch, bf16);
    return c;
  };
  GemmFamily family{level, facts, rows, {}, {}, {}, {}, {}};
  family.facts.half_width = features.half_width_vectors && !facts.tiles();
  family.facts.far_prefetch = features.far_prefetch;
  family.kernel_name = [with_shape](int mr, int nr, int pf) {
    return to_string(with_shape(mr, nr, pf));
  };
  family.generate = [with_shape](int mr, int nr, int pf) {
    return generate(with_shape(mr, nr, pf));
  };
  return family;
}

/// The family of `level` that multiplies bf16 rows with weights of type b; on AVX-512 with dot
/// products or FMAs, whichever the CPU is faster at. `scaled`: columns have a scale though b is
/// bf16.
GemmFamily bf16_family(IsaLevel level, DType b, bool scaled, const jit::IsaFeatures& features,
                       const Problem& problem);

/// The families that multiply bf16 rows with weights of type b at ctx's level: AMX, or AVX-512 with
/// dot products or, where the CPU has no AVX512-BF16 or is slow at it, with FMAs on widened rows
/// (equal bits). AMX adds in another order, so that the two are mixed under kFastest only.
void use_bf16_families(DType b, const ContextImpl& ctx, Invariance invariance, GemmSpec* spec);

/// What create() of every GEMM-shaped op comes to.
struct PlannedGemm {
  Dispatch dispatch;
  GemmPlan plan;
};

/// Chooses among the spec's families and makes the plan. What happened is in `report`, made for
/// spec.problem, but for created(): the op may need more than this.
Result<PlannedGemm> plan_gemm(ContextImpl& ctx, GemmSpec spec, CreateReport* report);

}  // namespace quern::inline v0
