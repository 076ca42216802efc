// fp4_gemm of c_api.h.
#include "ops/c_api_plans.h"
#include "ops/c_api_support.h"
#include "quern/c_api.h"
#include "quern/fp4_gemm.h"

// The pool is listed first, so that it goes last.
struct quern_fp4_gemm {
  std::shared_ptr<quern::ThreadPool> pool;
  quern::Fp4Gemm plan;
};

namespace quern::inline v0 {
namespace {

Status read_weights(const quern_fp4_weights* from, const char* name, Fp4Weights* to) noexcept {
  if (from == nullptr) return c_invalid("{s} is null", name);
  return c_first(c_reserved(from->reserved, name), c_matrix(from->codes, name, &to->codes),
                 c_matrix(from->scale, name, &to->scale), c_vector(from->global, name, &to->global),
                 c_enum(from->global_is, name, &to->global_is));
}

}  // namespace
}  // namespace quern::inline v0

using namespace quern;  // NOLINT(google-build-using-namespace): every function below is C

int32_t quern_fp4_gemm_create(const quern_context* context, const quern_fp4_gemm_desc* desc,
                              quern_fp4_gemm** out, quern_status* status) {
  return create_plan<Fp4Gemm, Fp4GemmDesc>(
      context, desc, out, status, [](const quern_fp4_gemm_desc& from, Fp4GemmDesc* to) {
        return c_first(c_reserved(from.reserved2, "desc"), read_gemm_desc(from, to),
                       c_enum(from.format, "desc.format", &to->format));
      });
}

int32_t quern_fp4_gemm_pack(const quern_fp4_gemm* plan, const quern_fp4_weights* weights,
                            quern_packed_weights** out, quern_status* status) {
  return pack_weights(plan, out, status, [&](const Fp4Gemm& op) -> Result<PackedWeights> {
    Fp4Weights w;
    if (const Status s = read_weights(weights, "weights", &w); !s.ok()) return s;
    return op.pack(w);
  });
}

int32_t quern_fp4_gemm_pack_gate_up(const quern_fp4_gemm* plan, const quern_fp4_weights* gate,
                                    const quern_fp4_weights* up, quern_packed_weights** out,
                                    quern_status* status) {
  return pack_weights(plan, out, status, [&](const Fp4Gemm& op) -> Result<PackedWeights> {
    Fp4Weights g, u;
    if (const Status s = read_weights(gate, "gate", &g); !s.ok()) return s;
    if (const Status s = read_weights(up, "up", &u); !s.ok()) return s;
    return op.pack_gate_up(g, u);
  });
}

size_t quern_fp4_gemm_scratch_bytes(const quern_fp4_gemm* plan, int64_t max_m) {
  return plan == nullptr ? 0 : plan->plan.scratch_bytes(max_m);
}

int32_t quern_fp4_gemm_run(const quern_fp4_gemm* plan, const quern_fp4_gemm_args* args,
                           void* scratch, size_t scratch_bytes, quern_status* status) {
  return run_gemm<Fp4GemmArgs>(plan, args, scratch, scratch_bytes, status,
                               read_gemm_args<quern_fp4_gemm_args, Fp4GemmArgs>);
}

int32_t quern_fp4_gemm_isa(const quern_fp4_gemm* plan) {
  return level_of(plan);
}

char* quern_fp4_gemm_explain(const quern_fp4_gemm* plan) {
  return explain_plan(plan);
}

void quern_fp4_gemm_destroy(quern_fp4_gemm* plan) {
  delete plan;
}
