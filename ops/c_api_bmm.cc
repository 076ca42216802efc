// bmm of c_api.h.
#include "ops/c_api_plans.h"
#include "ops/c_api_support.h"
#include "quern/bmm.h"
#include "quern/c_api.h"

// The pool is listed first, so that it goes last.
struct quern_bmm {
  std::shared_ptr<quern::ThreadPool> pool;
  quern::Bmm plan;
};

namespace quern::inline v0 {
namespace {

template <typename View, typename From>
Status read_batch(const From& from, const char* name, View* to) noexcept {
  *to = {from.data,
         DType::kF32,
         from.batch,
         from.rows,
         from.cols,
         from.batch_stride,
         from.row_stride != 0 ? from.row_stride : from.cols};
  if (const Status s = c_reserved(from.reserved, name); !s.ok()) return s;
  return c_dtype(from.dtype, "{s}.dtype ({0}) is unknown", name, &to->dtype);
}

}  // namespace
}  // namespace quern::inline v0

using namespace quern;  // NOLINT(google-build-using-namespace): every function below is C

int32_t quern_bmm_create(const quern_context* context, const quern_bmm_desc* desc, quern_bmm** out,
                         quern_status* status) {
  return create_plan<Bmm, BmmDesc>(
      context, desc, out, status, [](const quern_bmm_desc& from, BmmDesc* to) {
        to->n = from.n;
        to->k = from.k;
        return c_first(c_enum(from.b, "desc.b", &to->b),
                       c_dtype(from.c, kUnknownType, "desc.c", &to->c),
                       c_enum(from.invariance, "desc.invariance", &to->invariance));
      });
}

int32_t quern_bmm_pack(const quern_bmm* plan, const quern_bmm_weights* weights,
                       quern_packed_weights** out, quern_status* status) {
  return pack_weights(plan, out, status, [&](const Bmm& op) -> Result<PackedWeights> {
    if (weights == nullptr) return c_invalid("{s} is null", "weights");
    BmmWeights w;
    const Status s = c_first(c_reserved(weights->reserved, "weights"),
                             read_batch(weights->values, "weights", &w.values),
                             c_matrix(weights->scale, "weights", &w.scale),
                             c_enum(weights->order, "weights.order", &w.order));
    return s.ok() ? op.pack(w) : Result<PackedWeights>(s);
  });
}

size_t quern_bmm_scratch_bytes(const quern_bmm* plan, int64_t max_m) {
  return plan == nullptr ? 0 : plan->plan.scratch_bytes(max_m);
}

int32_t quern_bmm_run(const quern_bmm* plan, const quern_bmm_args* args, void* scratch,
                      size_t scratch_bytes, quern_status* status) {
  return run_gemm<BmmArgs>(
      plan, args, scratch, scratch_bytes, status, [](const quern_bmm_args& from, BmmArgs* to) {
        to->weights = from.weights == nullptr ? nullptr : &from.weights->weights;
        return c_first(read_batch(from.a, "a", &to->a), read_batch(from.b, "b", &to->b),
                       read_batch(from.c, "c", &to->c));
      });
}

int32_t quern_bmm_isa(const quern_bmm* plan) {
  return level_of(plan);
}

char* quern_bmm_explain(const quern_bmm* plan) {
  return explain_plan(plan);
}

void quern_bmm_destroy(quern_bmm* plan) {
  delete plan;
}
