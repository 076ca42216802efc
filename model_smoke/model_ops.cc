#include "model_smoke/model_ops.h"

namespace quern::smoke {

void DirectOps::embed(OpSite, MatrixView table, Span<const int64_t> ids, MutableMatrixView y) {
  require(static_cast<int64_t>(ids.size()) == y.rows, "embed: one id for each row");
  smoke::embed(exec_, table, ids.data(), y);
}

void DirectOps::rms_norm(OpSite, const NormArgs& a) {
  smoke::rms_norm(exec_, a.x, a.w, a.eps, a.y);
}

void DirectOps::rope(OpSite, const RopeTable& table, MutableHeadView x) {
  rope_half_split(exec_, table, x);
}

void DirectOps::append_kv(OpSite, HeadView k, HeadView v, KvCache& cache) {
  cache.reserve(cache.length() + k.rows);
  cache.append(k, v);
}

void DirectOps::attention(OpSite, const AttentionArgs& args, const KvCache& cache) {
  gated_attention(exec_, args, cache);
}

void DirectOps::conv(OpSite, const ConvArgs& a, ConvState& state) {
  conv1d_silu(exec_, a.u, *a.w, state, a.y);
}

void DirectOps::delta_gates(OpSite, const DeltaGateArgs& a) {
  smoke::delta_gates(a.a, a.b, a.a_log, a.dt_bias, a.g, a.beta);
}

void DirectOps::delta_rule(OpSite, const DeltaRule& rule, const DeltaArgs& args,
                           DeltaState& state) {
  gated_delta_rule(exec_, rule.shape, args, rule.form, state);
}

void DirectOps::gated_norm(OpSite, const GatedNormArgs& a) {
  gated_rms_norm(exec_, a.x, a.z, a.w, a.eps, a.y);
}

void DirectOps::silu_mul(OpSite, MatrixView gate, MatrixView up, MutableMatrixView y) {
  smoke::silu_mul(exec_, gate, up, y);
}

void DirectOps::scale_columns(OpSite, MatrixView x, VectorView factors, MutableMatrixView y) {
  smoke::scale_columns(exec_, x, factors, y);
}

void DirectOps::linear(OpSite, const LinearOp& op, const LinearArgs& args) {
  op.run(args.a, args.c, args.scratch);
}

}  // namespace quern::smoke
