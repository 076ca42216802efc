#include <string>

#include "model_smoke/checkpoint.h"
#include "model_smoke/float_module.h"
#include "model_smoke/generation_config.h"
#include "model_smoke/int4_module.h"
#include "model_smoke/kv_cache_plan.h"
#include "model_smoke/model_config.h"
#include "model_smoke/quant_config.h"
#include "model_smoke/tokenizer.h"
#include "tests/model_smoke/malformed_case.h"

namespace quern::smoke::test {
namespace {

struct Loader {
  const ModelConfig& config;
  const QuantConfig& quant;
  Checkpoint& checkpoint;

  void linear(const std::string& module, int64_t n, int64_t k) const {
    const ModuleFormat format = quant.format_of(module, checkpoint);
    if (format == ModuleFormat::kInt4) {
      uint64_t bytes = 0;
      (void)take_int4(checkpoint, {{module, n}}, k, int4_form_of(quant, module, n, k, checkpoint),
                      &bytes);
      return;
    }
    uint64_t bytes = 0;
    if (format == ModuleFormat::kFp8) {
      (void)take_fp8(checkpoint, quant, {{module, n}}, k,
                     fp8_form_of(quant, module, n, k, checkpoint), &bytes);
      return;
    }
    if (format == ModuleFormat::kFp4) {
      (void)take_fp4(checkpoint, quant, {{module, n}}, k,
                     fp4_form_of(quant, module, n, k, checkpoint), &bytes);
      return;
    }
    (void)checkpoint.get(module + ".weight", {n, k});
    if (format == ModuleFormat::kInt8) (void)checkpoint.get(module + ".weight_scale");
  }

  void layer(const std::string& p, LayerType type) const {
    const int64_t h = config.hidden_size;
    (void)checkpoint.get(p + "input_layernorm.weight", {h});
    (void)checkpoint.get(p + "post_attention_layernorm.weight", {h});
    linear(p + "mlp.gate_proj", config.intermediate_size, h);
    linear(p + "mlp.up_proj", config.intermediate_size, h);
    linear(p + "mlp.down_proj", h, config.intermediate_size);
    if (type == LayerType::kFullAttention) {
      full(p + "self_attn.");
    } else {
      delta(p + "linear_attn.");
    }
  }

  void full(const std::string& p) const {
    const int64_t h = config.hidden_size;
    const int64_t q = config.num_attention_heads * config.head_dim;
    const int64_t kv = config.num_key_value_heads * config.head_dim;
    linear(p + "q_proj", 2 * q, h);
    linear(p + "k_proj", kv, h);
    linear(p + "v_proj", kv, h);
    linear(p + "o_proj", h, q);
    (void)checkpoint.get(p + "q_norm.weight", {config.head_dim});
    (void)checkpoint.get(p + "k_norm.weight", {config.head_dim});
  }

  void delta(const std::string& p) const {
    const int64_t h = config.hidden_size;
    const int64_t hv = config.linear_num_value_heads;
    linear(p + "in_proj_qkv", config.linear_conv_channels(), h);
    linear(p + "in_proj_z", config.linear_value_width(), h);
    linear(p + "in_proj_b", hv, h);
    linear(p + "in_proj_a", hv, h);
    (void)checkpoint.get(p + "conv1d.weight",
                         {config.linear_conv_channels(), 1, config.linear_conv_kernel_dim});
    (void)checkpoint.get(p + "A_log", {hv});
    (void)checkpoint.get(p + "dt_bias", {hv});
    (void)checkpoint.get(p + "norm.weight", {config.linear_value_head_dim});
    linear(p + "out_proj", h, config.linear_value_width());
  }
};

}  // namespace

std::string hostile_text() {
  return "hello " + std::string(60, 'a') + "!";
}

void load_everything(const std::string& path) {
  const ModelDir dir(path);
  const ModelConfig config = load_model_config(dir);
  const QuantConfig quant = QuantConfig::load(dir);
  (void)load_generation_config(dir, config);
  Checkpoint checkpoint = Checkpoint::open(dir);
  const std::string prefix = text_tensor_prefix(config, checkpoint);
  settle_tied_head(config, prefix, checkpoint);
  const Loader loader{config, quant, checkpoint};
  (void)plan_kv_cache(quant, config, prefix, KvCacheChoice::kAuto, checkpoint);
  (void)checkpoint.get(prefix + "embed_tokens.weight", {config.vocab_size, config.hidden_size});
  (void)checkpoint.get(prefix + "norm.weight", {config.hidden_size});
  if (!config.tie_word_embeddings) loader.linear("lm_head", config.vocab_size, config.hidden_size);
  for (size_t i = 0; i < config.layer_types.size(); ++i) {
    loader.layer(prefix + "layers." + std::to_string(i) + ".", config.layer_types[i]);
  }
  (void)checkpoint.ignore_prefix("mtp.", "multi-token prediction");
  (void)checkpoint.ignore_prefix("model.visual.", "vision tower");
  checkpoint.require_all_consumed();
  (void)quant.unmatched_entries(checkpoint);
  const Tokenizer tokenizer = Tokenizer::load(dir);
  (void)tokenizer.decode(tokenizer.encode(hostile_text(), true));
}

}  // namespace quern::smoke::test
