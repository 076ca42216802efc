#include "model_smoke/comparing_ops.h"

#include <cstring>
#include <vector>

#include "model_smoke/plan_text.h"
#include "model_smoke/reference_check/checks.h"

namespace quern::smoke {
namespace {

/// A view's elements, first to last, in memory of their own; gaps between rows come along.
template <typename View>
class Copy {
 public:
  Copy(const View& view, int64_t elements)
      : bytes_(static_cast<size_t>(elements) * size_of(view.dtype)), view_(view) {
    if (!bytes_.empty()) std::memcpy(bytes_.data(), view.data, bytes_.size());
    view_.data = bytes_.data();
  }
  const View& view() const noexcept { return view_; }

 private:
  std::vector<std::byte> bytes_;
  View view_;
};

Copy<HeadView> copy_of(const HeadView& x) {
  const bool empty = x.rows == 0 || x.heads == 0;
  const int64_t last = (x.rows - 1) * x.row_stride + (x.heads - 1) * x.head_stride + x.dim;
  return {x, empty ? 0 : last};
}
Copy<MatrixView> copy_of(const MatrixView& m) {
  return {m, m.rows == 0 ? 0 : (m.rows - 1) * m.row_stride + m.cols};
}

}  // namespace

void ComparingOps::report(OpSite site, const char* op, const Comparison& comparison,
                          const char* output) const {
  sink_({.first_token = first_token_,
         .layer = site.layer,
         .module = site.module,
         .op = op,
         .output = output,
         .kernel = layers_,
         .comparison = comparison});
}

void ComparingOps::embed(OpSite site, MatrixView table, Span<const int64_t> ids,
                         MutableMatrixView y) {
  inner_.embed(site, table, ids, y);
  report(site, "embed", check_embed(table, ids, y));
}

void ComparingOps::rms_norm(OpSite site, const NormArgs& args) {
  const Copy<HeadView> x = copy_of(args.x);  // y may be x
  inner_.rms_norm(site, args);
  NormArgs inputs = args;
  inputs.x = x.view();
  report(site, "rms_norm", check_rms_norm(inputs));
}

void ComparingOps::rope(OpSite site, const RopeTable& table, MutableHeadView x) {
  const Copy<HeadView> before = copy_of(HeadView(x));
  inner_.rope(site, table, x);
  report(site, "rope", check_rope(table, before.view(), x));
}

void ComparingOps::append_kv(OpSite site, HeadView k, HeadView v, KvCache& cache) {
  const int64_t first = cache.length();
  inner_.append_kv(site, k, v, cache);
  report(site, "append_kv", check_append_kv(k, v, cache, first));
}

void ComparingOps::attention(OpSite site, const AttentionArgs& args, const KvCache& cache) {
  inner_.attention(site, args, cache);
  report(site, "attention", check_attention(args, cache));
}

void ComparingOps::conv(OpSite site, const ConvArgs& args, ConvState& state) {
  const ConvState before = state;
  inner_.conv(site, args, state);
  report(site, "conv1d_silu", check_conv(args, before));
  report(site, "conv1d_silu", check_conv_state(args, before, state), "state");
}

void ComparingOps::delta_gates(OpSite site, const DeltaGateArgs& args) {
  inner_.delta_gates(site, args);
  const GateComparison c = check_delta_gates(args);
  report(site, "delta_gates", c.g, "g");
  report(site, "delta_gates", c.beta, "beta");
}

void ComparingOps::delta_rule(OpSite site, const DeltaRule& rule, const DeltaArgs& args,
                              DeltaState& state) {
  const DeltaState before = state;
  inner_.delta_rule(site, rule, args, state);
  const DeltaComparison c = check_delta_rule(rule, args, before, state);
  report(site, "delta_rule", c.output);
  report(site, "delta_rule", c.state, "state");
}

void ComparingOps::gated_norm(OpSite site, const GatedNormArgs& args) {
  const Copy<HeadView> x = copy_of(args.x);
  inner_.gated_norm(site, args);
  GatedNormArgs inputs = args;
  inputs.x = x.view();
  report(site, "gated_rms_norm", check_gated_norm(inputs));
}

void ComparingOps::silu_mul(OpSite site, MatrixView gate, MatrixView up, MutableMatrixView y) {
  const Copy<MatrixView> before = copy_of(gate);  // y may be gate
  inner_.silu_mul(site, gate, up, y);
  report(site, "silu_mul", check_silu_mul(before.view(), up, y));
}

void ComparingOps::scale_columns(OpSite site, MatrixView x, VectorView factors,
                                 MutableMatrixView y) {
  inner_.scale_columns(site, x, factors, y);
  report(site, "scale_columns", check_scale_columns(x, factors, y));
}

void ComparingOps::linear(OpSite site, const LinearOp& op, const LinearArgs& args) {
  const LinearSource* source = op.source();
  require(source != nullptr, "ComparingOps: the model was loaded without keep_source");
  const Copy<MatrixView> residual = copy_of(MatrixView(args.c));
  inner_.linear(site, op, args);
  const std::string description = op.describe();
  std::string kind = description.substr(0, description.find(' '));
  if (source->output.residual) kind += "+residual";
  sink_({.first_token = first_token_,
         .layer = site.layer,
         .module = op.name(),
         .op = std::move(kind),
         .output = "output",
         .kernel = parse_plan_text(op.explain()).kernels_for(args.a.rows),
         .comparison = check_linear(pool_, *source, args.a, residual.view(), args.c)});
}

}  // namespace quern::smoke
