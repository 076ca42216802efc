// int4_gemm of c_api.h.
#include "ops/c_api_plans.h"
#include "ops/c_api_support.h"
#include "quern/c_api.h"
#include "quern/int4_gemm.h"

// The pool is listed first, so that it goes last.
struct quern_int4_gemm {
  std::shared_ptr<quern::ThreadPool> pool;
  quern::Int4Gemm plan;
};

namespace quern::inline v0 {
namespace {

Status read_weights(const quern_int4_weights* from, const char* name, Int4Weights* to) noexcept {
  if (from == nullptr) return c_invalid("{s} is null", name);
  to->zero_offset = from->zero_offset;
  return c_first(c_enum(from->storage, name, &to->storage), c_matrix(from->codes, name, &to->codes),
                 c_matrix(from->scale, name, &to->scale), c_matrix(from->zero, name, &to->zero),
                 c_vector(from->g_idx, name, &to->g_idx));
}

PackProgress progress_of(const quern_pack_progress* from) noexcept {
  return from == nullptr ? PackProgress() : PackProgress{from->report, from->user};
}

}  // namespace
}  // namespace quern::inline v0

using namespace quern;  // NOLINT(google-build-using-namespace): every function below is C

int32_t quern_int4_gemm_create(const quern_context* context, const quern_int4_gemm_desc* desc,
                               quern_int4_gemm** out, quern_status* status) {
  return create_plan<Int4Gemm, Int4GemmDesc>(
      context, desc, out, status, [](const quern_int4_gemm_desc& from, Int4GemmDesc* to) {
        to->group = from.group == 0 ? -1 : from.group;
        return c_first(read_gemm_desc(from, to), c_enum(from.zeros, "desc.zeros", &to->zeros),
                       c_dtype(from.scale, kUnknownType, "desc.scale", &to->scale),
                       c_flag(from.act_order, "desc.act_order", &to->act_order),
                       c_enum(from.activations, "desc.activations", &to->activations));
      });
}

int32_t quern_int4_gemm_pack(const quern_int4_gemm* plan, const quern_int4_weights* weights,
                             const quern_pack_progress* progress, quern_packed_weights** out,
                             quern_status* status) {
  return pack_weights(plan, out, status, [&](const Int4Gemm& op) -> Result<PackedWeights> {
    Int4Weights w;
    if (const Status s = read_weights(weights, "weights", &w); !s.ok()) return s;
    return op.pack(w, progress_of(progress));
  });
}

int32_t quern_int4_gemm_pack_gate_up(const quern_int4_gemm* plan, const quern_int4_weights* gate,
                                     const quern_int4_weights* up,
                                     const quern_pack_progress* progress,
                                     quern_packed_weights** out, quern_status* status) {
  return pack_weights(plan, out, status, [&](const Int4Gemm& op) -> Result<PackedWeights> {
    Int4Weights g, u;
    if (const Status s = read_weights(gate, "gate", &g); !s.ok()) return s;
    if (const Status s = read_weights(up, "up", &u); !s.ok()) return s;
    return op.pack_gate_up(g, u, progress_of(progress));
  });
}

size_t quern_int4_gemm_scratch_bytes(const quern_int4_gemm* plan, int64_t max_m) {
  return plan == nullptr ? 0 : plan->plan.scratch_bytes(max_m);
}

int32_t quern_int4_gemm_run(const quern_int4_gemm* plan, const quern_int4_gemm_args* args,
                            void* scratch, size_t scratch_bytes, quern_status* status) {
  return run_gemm<Int4GemmArgs>(plan, args, scratch, scratch_bytes, status,
                                read_gemm_args<quern_int4_gemm_args, Int4GemmArgs>);
}

int32_t quern_int4_gemm_isa(const quern_int4_gemm* plan) {
  return level_of(plan);
}

char* quern_int4_gemm_explain(const quern_int4_gemm* plan) {
  return explain_plan(plan);
}

void quern_int4_gemm_destroy(quern_int4_gemm* plan) {
  delete plan;
}
