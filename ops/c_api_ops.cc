// quantize_rows and the GEMMs of c_api.h.
#include "ops/c_api_plans.h"
#include "ops/c_api_support.h"
#include "quern/bf16_gemm.h"
#include "quern/c_api.h"
#include "quern/int8_gemm.h"
#include "quern/quantize_rows.h"

// Plans. The pool is listed first, so that it goes last.
struct quern_quantize_rows {
  std::shared_ptr<quern::ThreadPool> pool;
  quern::QuantizeRows plan;
};
struct quern_bf16_gemm {
  std::shared_ptr<quern::ThreadPool> pool;
  quern::Bf16Gemm plan;
};
struct quern_int8_gemm {
  std::shared_ptr<quern::ThreadPool> pool;
  quern::Int8Gemm plan;
};

namespace quern::inline v0 {
namespace {

Status read_weights(const quern_matrix* from, const char* name, MatrixView* to) noexcept {
  if (from == nullptr) return c_invalid("{s} is null", name);
  return c_matrix(*from, name, to);
}

Status read_weights(const quern_int8_weights* from, const char* name, Int8Weights* to) noexcept {
  if (from == nullptr) return c_invalid("{s} is null", name);
  return c_first(c_matrix(from->codes, name, &to->codes), c_vector(from->scale, name, &to->scale));
}

template <typename Weights, typename Handle, typename CWeights>
int32_t pack_one(const Handle* plan, const CWeights* weights, quern_packed_weights** out,
                 quern_status* status) noexcept {
  return pack_weights(plan, out, status, [&](const auto& op) -> Result<PackedWeights> {
    Weights w;
    if (const Status s = read_weights(weights, "weights", &w); !s.ok()) return s;
    return op.pack(w);
  });
}

template <typename Weights, typename Handle, typename CWeights>
int32_t pack_two(const Handle* plan, const CWeights* gate, const CWeights* up,
                 quern_packed_weights** out, quern_status* status) noexcept {
  return pack_weights(plan, out, status, [&](const auto& op) -> Result<PackedWeights> {
    Weights g, u;
    if (const Status s = read_weights(gate, "gate", &g); !s.ok()) return s;
    if (const Status s = read_weights(up, "up", &u); !s.ok()) return s;
    return op.pack_gate_up(g, u);
  });
}

}  // namespace
}  // namespace quern::inline v0

using namespace quern;  // NOLINT(google-build-using-namespace): every function below is C

int32_t quern_quantize_rows_create(const quern_context* context,
                                   const quern_quantize_rows_desc* desc, quern_quantize_rows** out,
                                   quern_status* status) {
  return create_plan<QuantizeRows, QuantizeRowsDesc>(
      context, desc, out, status, [](const quern_quantize_rows_desc& from, QuantizeRowsDesc* to) {
        to->k = from.k;
        to->group = from.group;
        return c_dtype(from.a, kUnknownType, "desc.a", &to->a);
      });
}

int32_t quern_quantize_rows_run(const quern_quantize_rows* plan,
                                const quern_quantize_rows_args* args, quern_status* status) {
  return run_plan<QuantizeRowsArgs>(
      plan, args, status,
      [](const quern_quantize_rows_args& from, QuantizeRowsArgs* to) {
        return c_first(c_matrix(from.a, "a", &to->a), c_matrix(from.q, "q", &to->q),
                       c_vector(from.scale, "scale", &to->scale),
                       c_matrix(from.sums, "sums", &to->sums));
      },
      [](const QuantizeRows& op, const QuantizeRowsArgs& a) { return op.run(a); });
}

int64_t quern_quantize_rows_groups(const quern_quantize_rows* plan) {
  return plan == nullptr ? 0 : plan->plan.groups();
}

int32_t quern_quantize_rows_isa(const quern_quantize_rows* plan) {
  return level_of(plan);
}

char* quern_quantize_rows_explain(const quern_quantize_rows* plan) {
  return explain_plan(plan);
}

void quern_quantize_rows_destroy(quern_quantize_rows* plan) {
  delete plan;
}

int32_t quern_bf16_gemm_create(const quern_context* context, const quern_bf16_gemm_desc* desc,
                               quern_bf16_gemm** out, quern_status* status) {
  return create_plan<Bf16Gemm, Bf16GemmDesc>(context, desc, out, status,
                                             read_gemm_desc<quern_bf16_gemm_desc, Bf16GemmDesc>);
}

int32_t quern_bf16_gemm_pack(const quern_bf16_gemm* plan, const quern_matrix* weights,
                             quern_packed_weights** out, quern_status* status) {
  return pack_one<MatrixView>(plan, weights, out, status);
}

int32_t quern_bf16_gemm_pack_gate_up(const quern_bf16_gemm* plan, const quern_matrix* gate,
                                     const quern_matrix* up, quern_packed_weights** out,
                                     quern_status* status) {
  return pack_two<MatrixView>(plan, gate, up, out, status);
}

size_t quern_bf16_gemm_scratch_bytes(const quern_bf16_gemm* plan, int64_t max_m) {
  return plan == nullptr ? 0 : plan->plan.scratch_bytes(max_m);
}

int32_t quern_bf16_gemm_run(const quern_bf16_gemm* plan, const quern_bf16_gemm_args* args,
                            void* scratch, size_t scratch_bytes, quern_status* status) {
  return run_gemm<Bf16GemmArgs>(plan, args, scratch, scratch_bytes, status,
                                read_gemm_args<quern_bf16_gemm_args, Bf16GemmArgs>);
}

int32_t quern_bf16_gemm_isa(const quern_bf16_gemm* plan) {
  return level_of(plan);
}

char* quern_bf16_gemm_explain(const quern_bf16_gemm* plan) {
  return explain_plan(plan);
}

void quern_bf16_gemm_destroy(quern_bf16_gemm* plan) {
  delete plan;
}

int32_t quern_int8_gemm_create(const quern_context* context, const quern_int8_gemm_desc* desc,
                               quern_int8_gemm** out, quern_status* status) {
  return create_plan<Int8Gemm, Int8GemmDesc>(
      context, desc, out, status, [](const quern_int8_gemm_desc& from, Int8GemmDesc* to) {
        return c_first(read_gemm_desc(from, to),
                       c_enum(from.activations, "desc.activations", &to->activations),
                       c_dtype(from.a, kUnknownType, "desc.a", &to->a));
      });
}

int32_t quern_int8_gemm_pack(const quern_int8_gemm* plan, const quern_int8_weights* weights,
                             quern_packed_weights** out, quern_status* status) {
  return pack_one<Int8Weights>(plan, weights, out, status);
}

int32_t quern_int8_gemm_pack_gate_up(const quern_int8_gemm* plan, const quern_int8_weights* gate,
                                     const quern_int8_weights* up, quern_packed_weights** out,
                                     quern_status* status) {
  return pack_two<Int8Weights>(plan, gate, up, out, status);
}

size_t quern_int8_gemm_scratch_bytes(const quern_int8_gemm* plan, int64_t max_m) {
  return plan == nullptr ? 0 : plan->plan.scratch_bytes(max_m);
}

int32_t quern_int8_gemm_run(const quern_int8_gemm* plan, const quern_int8_gemm_args* args,
                            void* scratch, size_t scratch_bytes, quern_status* status) {
  return run_gemm<Int8GemmArgs>(plan, args, scratch, scratch_bytes, status,
                                [](const quern_int8_gemm_args& from, Int8GemmArgs* to) {
                                  return c_first(read_gemm_args(from, to),
                                                 c_vector(from.a_scale, "a_scale", &to->a_scale));
                                });
}

int32_t quern_int8_gemm_isa(const quern_int8_gemm* plan) {
  return level_of(plan);
}

char* quern_int8_gemm_explain(const quern_int8_gemm* plan) {
  return explain_plan(plan);
}

void quern_int8_gemm_destroy(quern_int8_gemm* plan) {
  delete plan;
}
