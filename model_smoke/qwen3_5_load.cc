#include <algorithm>
#include <utility>

#include "model_smoke/linear_ops.h"
#include "model_smoke/qwen3_5.h"
#include "model_smoke/weights.h"

namespace quern::smoke {

namespace {
constexpr char kNorm[] = "rms_norm";
}

/// Turns the tensors of a checkpoint into the parts of the model.
class Qwen3_5::Builder {
 public:
  Builder(const Context& ctx, const QuantConfig& quant, Checkpoint& checkpoint, Qwen3_5& model)
      : ctx_(ctx),
        quant_(quant),
        checkpoint_(checkpoint),
        loader_(checkpoint, quant),
        model_(model),
        config_(model.config_),
        activations_{.dtype = model.mode_.activations()},
        into_residual_{.dtype = model.mode_.activations(), .residual = true} {}

  void build(KvCacheChoice kv_cache) {
    checkpoint_.ignore_prefix("mtp.", "multi-token prediction is not part of the text model");
    checkpoint_.ignore_prefix("model.visual.", "vision tower: this tool runs the text model");
    prefix_ = text_tensor_prefix(config_, checkpoint_);
    settle_tied_head(config_, prefix_, checkpoint_);
    model_.kv_cache_ = plan_kv_cache(quant_, config_, prefix_, kv_cache, checkpoint_);
    model_.mode_.fp8_kv = model_.kv_cache_.fp8;
    load_ends();
    for (size_t i = 0; i < config_.layer_types.size(); ++i) {
      model_.layers_.push_back(
          load_layer(prefix_ + "layers." + std::to_string(i) + ".", config_.layer_types[i]));
    }
    checkpoint_.require_all_consumed();
    model_.parameters_ = loader_.take_parameters();
    for (const std::string& name : model_.kv_cache_.taken) {
      const TensorView& scale = *checkpoint_.find(name);
      model_.parameters_.push_back(
          {name, to_string(scale.dtype), scale.shape, scale.bytes, "append_kv, attention"});
    }
    warn_of_rounding();
    reserve_scratch();
  }

 private:
  void warn_of_rounding() {
    const int64_t rounded = loader_.wider_than_bf16();
    if (rounded == 0 || model_.mode_.act == ActMode::kF32) return;
    checkpoint_.warn(checkpoint_.source() + ": " + std::to_string(rounded) +
                     " weight matrices are F16 or F32 and are rounded to bf16 (--backend reference "
                     "--act f32 keeps them)");
  }

  /// Embedding, final norm and lm_head, which may be the embedding again.
  void load_ends() {
    const int64_t vocab = config_.vocab_size, hidden = config_.hidden_size;
    HostWeights embedding = loader_.embedding({prefix_ + "embed_tokens", vocab}, hidden);
    // A bf16 model gathers bf16 rows; an f32 one widens bf16 rows as it gathers.
    if (model_.mode_.act != ActMode::kF32) to_bf16(embedding);
    model_.final_norm_ = loader_.vector(prefix_ + "norm.weight", {hidden}, kNorm);
    const LinearOutput logits{.dtype = DType::kF32};
    std::vector<HostWeights> head;
    if (config_.tie_word_embeddings) {
      HostWeights tied = copy(embedding);
      tied.name = "lm_head (tied)";
      tied.joined = "alone: no other module reads its input";
      tied.decided = "plain: " + config_.file + " ties it to the embedding";
      tied.file_bytes = 0;  // counted as the embedding
      head.push_back(std::move(tied));
    } else {
      head.push_back(loader_.single({"lm_head", vocab}, hidden, false));
    }
    model_.lm_head_ = Linear(ctx_, model_.mode_, std::move(head), logits);
    model_.embedding_ = std::move(embedding.values);
  }

  Layer load_layer(const std::string& at, LayerType type) {
    const int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
    Layer layer;
    layer.input_norm = loader_.vector(at + "input_layernorm.weight", {hidden}, kNorm);
    layer.post_norm = loader_.vector(at + "post_attention_layernorm.weight", {hidden}, kNorm);
    if (type == LayerType::kFullAttention) {
      layer.attention = load_attention(at + "self_attn.");
    } else {
      layer.delta_net = load_delta_net(at + "linear_attn.");
    }
    layer.gate_up =
        GateUp(ctx_, model_.mode_, loader_.single({at + "mlp.gate_proj", inner}, hidden, false),
               loader_.single({at + "mlp.up_proj", inner}, hidden, false));
    layer.down = linear({{at + "mlp.down_proj", hidden}}, inner, false, into_residual_);
    return layer;
  }

  FullAttention load_attention(const std::string& at) {
    const int64_t hidden = config_.hidden_size, d = config_.head_dim;
    const int64_t q = config_.num_attention_heads * d, kv = config_.num_key_value_heads * d;
    const bool bias = config_.attention_bias;
    FullAttention out;
    out.qkv = linear({{at + "q_proj", 2 * q}, {at + "k_proj", kv}, {at + "v_proj", kv}}, hidden,
                     bias, activations_);
    out.out = linear({{at + "o_proj", hidden}}, q, bias, into_residual_);
    out.q_norm = loader_.vector(at + "q_norm.weight", {d}, kNorm);
    out.k_norm = loader_.vector(at + "k_norm.weight", {d}, kNorm);
    return out;
  }

  DeltaNet load_delta_net(const std::string& at) {
    const int64_t hidden = config_.hidden_size, channels = config_.linear_conv_channels();
    const int64_t heads = config_.linear_num_value_heads, taps = config_.linear_conv_kernel_dim;
    const int64_t values = config_.linear_value_width();
    DeltaNet out;
    out.qkvz = linear({{at + "in_proj_qkv", channels}, {at + "in_proj_z", values}}, hidden, false,
                      activations_);
    // f32 in every mode: gates act through exp, and [T, 2 Hv] costs nothing.
    out.ba = linear({{at + "in_proj_b", heads}, {at + "in_proj_a", heads}}, hidden, false,
                    {.dtype = DType::kF32});
    out.out = linear({{at + "out_proj", hidden}}, values, false, into_residual_);
    out.conv =
        ConvWeights(loader_.vector(at + "conv1d.weight", {channels, 1, taps}, "conv1d_silu").data(),
                    channels, taps);
    out.a_log = loader_.vector(at + "A_log", {heads}, "delta_gates");
    out.dt_bias = loader_.vector(at + "dt_bias", {heads}, "delta_gates");
    out.norm =
        loader_.vector(at + "norm.weight", {config_.linear_value_head_dim}, "gated_rms_norm");
    return out;
  }

  Linear linear(const std::vector<ModuleRef>& modules, int64_t k, bool bias,
                const LinearOutput& output) {
    return Linear(ctx_, model_.mode_, loader_.stacked(modules, k, bias), output);
  }

  void reserve_scratch() {
    size_t bytes = 0;
    for (const LinearOp* op : model_.ops()) {
      bytes = std::max(bytes, op->scratch_bytes(kPrefillBlock));
    }
    model_.scratch_.reserve(bytes);
  }

  const Context& ctx_;
  const QuantConfig& quant_;
  Checkpoint& checkpoint_;
  WeightLoader loader_;
  Qwen3_5& model_;
  const ModelConfig& config_;
  LinearOutput activations_, into_residual_;
  std::string prefix_;
};

Qwen3_5 Qwen3_5::load(const Context& ctx, const ModelConfig& config, const QuantConfig& quant,
                      Checkpoint& checkpoint, const LoadMode& load) {
  ComputeMode mode = choose_mode(load.backend, load.act, quant.method());
  mode.packing = load.packing;
  mode.keep_source = load.keep_source;
  mode.inspect = load.inspect;
  Qwen3_5 model(ctx, config, mode);
  checkpoint.check_unchanged();
  Builder(ctx, quant, checkpoint, model).build(load.kv_cache);
  return model;
}

}  // namespace quern::smoke
