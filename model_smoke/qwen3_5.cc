#include "model_smoke/qwen3_5.h"

#include <algorithm>
#include <string>

namespace quern::smoke {
namespace {

VectorView view(const std::vector<float>& v) {
  return vector_view(v.data(), static_cast<int64_t>(v.size()));
}

/// The whole row is one vector.
NormArgs row_norm(MatrixView x, const std::vector<float>& w, float eps, MutableMatrixView y) {
  return {heads_of(x, 1, x.cols, 0), view(w), eps, heads_of(y, 1, y.cols, 0)};
}

}  // namespace

Qwen3_5::Qwen3_5(const Context& ctx, const ModelConfig& config, const ComputeMode& mode)
    : config_(config),
      mode_(mode),
      ops_(ctx.pool(), mode.backend == Backend::kJit ? LayerImpl::kSimd : LayerImpl::kScalar),
      delta_shape_{.key_heads = config.linear_num_key_heads,
                   .value_heads = config.linear_num_value_heads,
                   .key_dim = config.linear_key_head_dim,
                   .value_dim = config.linear_value_head_dim},
      rope_(config.rotary_dim, config.rope_theta) {}

ModelCache Qwen3_5::make_cache() const {
  ModelCache cache;
  for (size_t i = 0; i < config_.layer_types.size(); ++i) {
    LayerCache layer;
    if (config_.layer_types[i] == LayerType::kFullAttention) {
      const int64_t heads = config_.num_key_value_heads, d = config_.head_dim;
      const KvScales& scales = kv_cache_.layer[i];
      layer.kv = kv_cache_.fp8 ? KvCache::e4m3_scaled(heads, d, scales.k, scales.v)
                               : KvCache(mode_.activations(), heads, d);
    } else {
      layer.conv = ConvState(config_.linear_conv_channels(), config_.linear_conv_kernel_dim);
      layer.delta = DeltaState(delta_shape_);
    }
    cache.layers.push_back(std::move(layer));
  }
  return cache;
}

void Qwen3_5::observe(const ForwardOptions& options, std::string_view name,
                      const Tensor& value) const {
  if (options.observer) options.observer(name, value.view());
}

void Qwen3_5::forward(Span<const int32_t> ids, ModelCache& cache, const ForwardOptions& options,
                      Tensor& logits) {
  const int64_t tokens = static_cast<int64_t>(ids.size());
  require(tokens > 0 && cache.layers.size() == layers_.size(), "forward: no tokens or wrong cache");
  const std::vector<int64_t> wide(ids.begin(), ids.end());
  for (const int64_t id : wide) {
    require(id >= 0 && id < config_.vocab_size, "forward: a token id is outside the vocabulary");
  }
  logits.resize(DType::kF32, options.last_only ? 1 : tokens, config_.vocab_size);
  ModelOps& ops = options.ops != nullptr ? *options.ops : ops_;
  constexpr OpSite kHead{.module = "lm_head"};
  for (int64_t t = 0; t < tokens; t += kPrefillBlock) {
    const int64_t count = std::min(kPrefillBlock, tokens - t);
    forward_block({wide.data() + t, static_cast<size_t>(count)}, cache, options, ops);
    if (!options.last_only) {
      lm_head_.run(ops, kHead,
                   {normed_.view(), rows_of(logits.mutable_view(), t, count), scratch()});
    } else if (t + count == tokens) {
      lm_head_.run(ops, kHead,
                   {rows_of(normed_.view(), count - 1, 1), logits.mutable_view(), scratch()});
    }
  }
}

void Qwen3_5::forward_block(Span<const int64_t> ids, ModelCache& cache,
                            const ForwardOptions& options, ModelOps& ops) {
  const int64_t count = static_cast<int64_t>(ids.size());
  const DType type = mode_.activations();
  const float eps = config_.rms_norm_eps;
  hidden_.resize(type, count, config_.hidden_size);
  normed_.resize(type, count, config_.hidden_size);
  ops.embed({.module = "embed_tokens"}, embedding_.view(), ids, hidden_.mutable_view());
  observe(options, "embed", hidden_);
  rope_.fill(cache.length, count, type);
  const auto normalize = [&](OpSite site, const std::vector<float>& w) {
    ops.rms_norm(site, row_norm(hidden_.view(), w, eps, normed_.mutable_view()));
  };
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    const int64_t index = static_cast<int64_t>(i);
    normalize({index, "input_layernorm"}, layer.input_norm);
    if (layer.attention) {
      run_attention(ops, index, cache.layers[i], cache.length);
    } else {
      run_delta_net(ops, index, cache.layers[i], options);
    }
    normalize({index, "post_attention_layernorm"}, layer.post_norm);
    mlp_.resize(type, count, config_.intermediate_size);
    const OpSite mlp{index, "mlp"};
    layer.gate_up.run(ops, mlp, {normed_.view(), mlp_.mutable_view(), scratch()});
    layer.down.run(ops, mlp, {mlp_.view(), hidden_.mutable_view(), scratch()});
    observe(options, "layer" + std::to_string(i), hidden_);
  }
  normalize({.module = "norm"}, final_norm_);
  observe(options, "final_norm", normed_);
  cache.length += count;
}

void Qwen3_5::run_attention(ModelOps& ops, int64_t index, LayerCache& cache, int64_t position) {
  FullAttention& w = *layers_[static_cast<size_t>(index)].attention;
  const int64_t count = normed_.rows(), d = config_.head_dim;
  const int64_t heads = config_.num_attention_heads, kv_heads = config_.num_key_value_heads;
  const DType type = mode_.activations();
  const float eps = config_.rms_norm_eps;
  const OpSite site{index, "self_attn"};
  projected_.resize(type, count, w.qkv.n());
  w.qkv.run(ops, site, {normed_.view(), projected_.mutable_view(), scratch()});

  // Columns: for each query head d of q and d of gate, then the k heads, then the v heads.
  const MatrixView all = projected_.view();
  const HeadView q = heads_of(all, heads, d, 2 * d);
  const HeadView gate = heads_of(all, heads, d, 2 * d, d);
  const HeadView k = heads_of(all, kv_heads, d, d, 2 * heads * d);
  const HeadView v = heads_of(all, kv_heads, d, d, 2 * heads * d + kv_heads * d);

  mixed_.resize(type, count, heads * d);
  keys_.resize(type, count, kv_heads * d);
  const MutableHeadView q_rotated = heads_of(mixed_.mutable_view(), heads, d, d);
  const MutableHeadView k_rotated = heads_of(keys_.mutable_view(), kv_heads, d, d);
  ops.rms_norm({index, "self_attn.q_norm"}, {q, view(w.q_norm), eps, q_rotated});
  ops.rms_norm({index, "self_attn.k_norm"}, {k, view(w.k_norm), eps, k_rotated});
  ops.rope({index, "self_attn.q"}, rope_, q_rotated);
  ops.rope({index, "self_attn.k"}, rope_, k_rotated);

  ops.append_kv(site, k_rotated, v, cache.kv);
  core_.resize(type, count, heads * d);
  ops.attention(site,
                {.q = q_rotated,
                 .gate = gate,
                 .first_position = position,
                 .out = heads_of(core_.mutable_view(), heads, d, d)},
                cache.kv);
  w.out.run(ops, site, {core_.view(), hidden_.mutable_view(), scratch()});
}

void Qwen3_5::run_delta_net(ModelOps& ops, int64_t index, LayerCache& cache,
                            const ForwardOptions& options) {
  DeltaNet& w = *layers_[static_cast<size_t>(index)].delta_net;
  const int64_t count = normed_.rows(), channels = delta_shape_.channels();
  const int64_t heads = delta_shape_.value_heads, dv = delta_shape_.value_dim;
  const DType type = mode_.activations();
  const OpSite site{index, "linear_attn"};
  projected_.resize(type, count, w.qkvz.n());
  ba_.resize(DType::kF32, count, 2 * heads);
  w.qkvz.run(ops, site, {normed_.view(), projected_.mutable_view(), scratch()});
  w.ba.run(ops, site, {normed_.view(), ba_.mutable_view(), scratch()});

  mixed_.resize(type, count, channels);
  ops.conv({index, "linear_attn.conv1d"},
           {columns(projected_.view(), 0, channels), &w.conv, mixed_.mutable_view()}, cache.conv);

  g_.resize(DType::kF32, count, heads);
  beta_.resize(DType::kF32, count, heads);
  ops.delta_gates(site, {.a = columns(ba_.view(), heads, heads),
                         .b = columns(ba_.view(), 0, heads),
                         .a_log = view(w.a_log),
                         .dt_bias = view(w.dt_bias),
                         .g = g_.mutable_view(),
                         .beta = beta_.mutable_view()});

  core_.resize(type, count, delta_shape_.value_width());
  const DeltaForm usual = count > 1 ? DeltaForm::kChunked : DeltaForm::kRecurrent;
  ops.delta_rule(
      site, {delta_shape_, options.delta.value_or(usual)},
      {.qkv = mixed_.view(), .g = g_.view(), .beta = beta_.view(), .o = core_.mutable_view()},
      cache.delta);

  gated_.resize(type, count, delta_shape_.value_width());
  ops.gated_norm({index, "linear_attn.norm"},
                 {.x = heads_of(core_.view(), heads, dv, dv),
                  .z = heads_of(projected_.view(), heads, dv, dv, channels),
                  .w = view(w.norm),
                  .eps = config_.rms_norm_eps,
                  .y = heads_of(gated_.mutable_view(), heads, dv, dv)});
  w.out.run(ops, site, {gated_.view(), hidden_.mutable_view(), scratch()});
}

std::vector<const LinearOp*> Qwen3_5::ops() const {
  std::vector<const LinearOp*> out;
  const auto add = [&out](const std::vector<const LinearOp*>& more) {
    out.insert(out.end(), more.begin(), more.end());
  };
  for (const Layer& layer : layers_) {
    if (layer.attention) {
      add(layer.attention->qkv.ops());
      add(layer.attention->out.ops());
    } else {
      add(layer.delta_net->qkvz.ops());
      add(layer.delta_net->ba.ops());
      add(layer.delta_net->out.ops());
    }
    add(layer.gate_up.ops());
    add(layer.down.ops());
  }
  add(lm_head_.ops());
  return out;
}

}  // namespace quern::smoke
