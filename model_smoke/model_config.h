#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model_smoke/checkpoint.h"
#include "model_smoke/json_file.h"
#include "model_smoke/model_dir.h"

namespace quern::smoke {

enum class LayerType : uint8_t { kLinearAttention, kFullAttention };

/// Qwen3.5 dense, text part (models.md section 1.1). Every number has been checked for its range
/// and against the others when this exists.
struct ModelConfig {
  std::string file;          ///< for messages
  std::string architecture;  ///< "Qwen3_5ForCausalLM" or "Qwen3_5ForConditionalGeneration"

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t linear_num_key_heads = 0;
  int64_t linear_num_value_heads = 0;
  int64_t linear_key_head_dim = 0;
  int64_t linear_value_head_dim = 0;
  int64_t linear_conv_kernel_dim = 0;
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 0;
  double rope_theta = 0;
  double partial_rotary_factor = 0;
  int64_t rotary_dim = 0;  ///< int(head_dim * partial_rotary_factor): even, 2..head_dim
  bool attention_bias = false;
  bool tie_word_embeddings = false;
  std::vector<LayerType> layer_types;  ///< num_hidden_layers of them

  /// Rows of in_proj_qkv and channels of the convolution: 2 Hk dk + Hv dv.
  int64_t linear_conv_channels() const {
    return 2 * linear_num_key_heads * linear_key_head_dim +
           linear_num_value_heads * linear_value_head_dim;
  }
  int64_t linear_value_width() const { return linear_num_value_heads * linear_value_head_dim; }
};

/// Reads config.json.
ModelConfig load_model_config(const ModelDir& dir);
/// The same from a parsed file; `file` is what messages call it.
ModelConfig parse_model_config(const Json& config, const std::string& file);

/// Where the text tensors live: "model." or "model.language_model.". Decided by what the files
/// hold, because a vision checkpoint is also loaded into the text-only class (bug log L14). The
/// prefixes of the parts that are no text ("model.visual.", "mtp.") stay with the caller.
std::string text_tensor_prefix(const ModelConfig& config, const Checkpoint& checkpoint);

/// Tied embeddings: an output head in the files must be the embedding bit for bit, and is then
/// ignored for that reason. Anything else called lm_head contradicts the config: InputError.
void settle_tied_head(const ModelConfig& config, const std::string& prefix, Checkpoint& checkpoint);

}  // namespace quern::smoke
