#include "model_smoke/model_config.h"

#include <cstring>
#include <string_view>

#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"

namespace quern::smoke {
namespace {

constexpr uint64_t kMaxConfigBytes = 16'000'000;
constexpr char kText[] = "Qwen3_5ForCausalLM";
constexpr char kVision[] = "Qwen3_5ForConditionalGeneration";
constexpr char kTextType[] = "qwen3_5_text";
constexpr char kVisionType[] = "qwen3_5";
constexpr char kKnown[] = "Qwen3_5ForCausalLM or Qwen3_5ForConditionalGeneration";

// Ranges: far above every published model, and small enough that products of three fit 64 bits.
constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 8192;
constexpr int64_t kMaxConvTaps = 64;
constexpr int64_t kMaxPositions = int64_t{1} << 31;

/// A model_type that is there must be the one of the architecture.
void check_model_type(const JsonNode& at, const char* expected, const std::string& architecture) {
  const auto type = at.find("model_type");
  if (type && type->as_string() != expected) {
    type->fail(std::string(expected) + ", as the architecture " + architecture + " has it");
  }
}

std::string read_architecture(const JsonNode& root) {
  const auto list = root.find("architectures");
  if (list) {
    list->require_array();
    if (list->size() != 1) list->fail("an array of one architecture");
    const JsonNode name = list->element(0);
    if (name.as_string() != kText && name.as_string() != kVision) {
      name.fail(std::string("a known architecture: ") + kKnown);
    }
    check_model_type(root, name.as_string() == kText ? kTextType : kVisionType, name.as_string());
    return name.as_string();
  }
  const JsonNode type = root.at("model_type", "architectures, or a model_type");
  if (type.as_string() == kTextType) return kText;
  if (type.as_string() == kVisionType) return kVision;
  type.fail("a known model_type: qwen3_5_text or qwen3_5");
}

// HF's rule: i is a full-attention layer when (i + 1) is a multiple of the interval.
LayerType type_by_interval(int64_t layer, int64_t interval) {
  return (layer + 1) % interval == 0 ? LayerType::kFullAttention : LayerType::kLinearAttention;
}

// The list wins; an interval beside it must mean the same.
void check_interval(const JsonNode& text, const std::vector<LayerType>& types, int64_t interval) {
  if (!text.value().contains("full_attention_interval")) return;
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == type_by_interval(static_cast<int64_t>(i), interval)) continue;
    text.at("full_attention_interval")
        .fail("the interval of layer_types, which has another type for layer " + std::to_string(i));
  }
}

std::vector<LayerType> read_layer_types(const JsonNode& text, int64_t layers) {
  std::vector<LayerType> types;
  const int64_t interval = text.int_or("full_attention_interval", 4, 1, kMaxLayers);
  const auto list = text.find("layer_types");
  if (!list) {
    for (int64_t i = 0; i < layers; ++i) types.push_back(type_by_interval(i, interval));
    return types;
  }
  list->require_array();
  if (static_cast<int64_t>(list->size()) != layers) {
    list->fail("an array of num_hidden_layers = " + std::to_string(layers) + " names");
  }
  for (size_t i = 0; i < list->size(); ++i) {
    const JsonNode name = list->element(i);
    if (name.as_string() == "linear_attention") {
      types.push_back(LayerType::kLinearAttention);
    } else if (name.as_string() == "full_attention") {
      types.push_back(LayerType::kFullAttention);
    } else {
      name.fail("linear_attention or full_attention");
    }
  }
  check_interval(text, types, interval);
  return types;
}

void check_rope_type(const JsonNode& rope) {
  for (const char* key : {"rope_type", "type"}) {
    const auto type = rope.find(key);
    // "mrope" is what early vision configs call the ordinary frequencies with three streams.
    if (type && type->as_string() != "default" && type->as_string() != "mrope") {
      type->fail("rope type default");
    }
  }
  const auto sections = rope.find("mrope_section");
  if (!sections) return;
  sections->require_array();
  if (sections->size() != 3) sections->fail("an array of 3");
  for (size_t i = 0; i < 3; ++i) sections->element(i).as_int(0, kMaxHeadDim);
}

/// A number that may stand in the rope dictionary, at the top level of the text, or in both places:
/// then it must be the same one. `rule` says what `ok` accepts.
template <typename Ok>
double read_rope_number(const JsonNode& text, const std::optional<JsonNode>& rope, const char* key,
                        double fallback, const char* rule, Ok&& ok) {
  const auto read = [&](const JsonNode& at) {
    const double value = at.number_or(key, fallback);
    if (!ok(value)) at.at(key).fail(rule);
    return value;
  };
  const double outer = read(text);
  if (!rope || !rope->value().contains(key)) return outer;
  const double inner = read(*rope);
  if (text.value().contains(key) && outer != inner) {
    text.at(key).fail("the same as " + rope->at(key).path() + ", " + Json(inner).dump());
  }
  return inner;
}

void read_rope(const JsonNode& text, ModelConfig* c) {
  auto rope = text.find("rope_parameters");
  const auto old_spelling = text.find("rope_scaling");
  if (rope && old_spelling && rope->value() != old_spelling->value()) {
    old_spelling->fail("the same as rope_parameters, or nothing");
  }
  if (!rope) rope = old_spelling;
  if (rope) check_rope_type(*rope);
  c->rope_theta =
      read_rope_number(text, rope, "rope_theta", 10000.0, "a number above 1 and at most 1e12",
                       [](double v) { return v > 1.0 && v <= 1e12; });
  c->partial_rotary_factor =
      read_rope_number(text, rope, "partial_rotary_factor", 0.25, "a number above 0 and at most 1",
                       [](double v) { return v > 0.0 && v <= 1.0; });
  c->rotary_dim = static_cast<int64_t>(static_cast<double>(c->head_dim) * c->partial_rotary_factor);
  if (c->rotary_dim < 2 || c->rotary_dim % 2 != 0) {
    throw InputError(c->file, "partial_rotary_factor", "an even rotary width of at least 2",
                     std::to_string(c->rotary_dim) + " = int(head_dim " +
                         std::to_string(c->head_dim) + " x " +
                         Json(c->partial_rotary_factor).dump() + ")");
  }
}

bool read_tie(const JsonNode& root, const JsonNode& text) {
  const bool nested = &root.value() != &text.value();
  const bool outer = root.bool_or("tie_word_embeddings", false);
  if (!nested || !text.has("tie_word_embeddings")) return outer;
  const bool inner = text.bool_or("tie_word_embeddings", false);
  if (root.has("tie_word_embeddings") && outer != inner) {
    text.at("tie_word_embeddings")
        .fail(std::string("the same as at the top level, ") + (outer ? "true" : "false"),
              "is there a lm_head.weight in the files?");
  }
  return inner;
}

void read_sizes(const JsonNode& text, ModelConfig* c) {
  c->vocab_size = text.int_at("vocab_size", 1, kMaxVocab);
  c->hidden_size = text.int_at("hidden_size", 1, kMaxWidth);
  c->intermediate_size = text.int_at("intermediate_size", 1, kMaxWidth);
  c->num_hidden_layers = text.int_at("num_hidden_layers", 1, kMaxLayers);
  c->num_attention_heads = text.int_at("num_attention_heads", 1, kMaxHeads);
  c->num_key_value_heads = text.int_at("num_key_value_heads", 1, kMaxHeads);
  c->head_dim = text.int_at("head_dim", 1, kMaxHeadDim);
  c->linear_num_key_heads = text.int_at("linear_num_key_heads", 1, kMaxHeads);
  c->linear_num_value_heads = text.int_at("linear_num_value_heads", 1, kMaxHeads);
  c->linear_key_head_dim = text.int_at("linear_key_head_dim", 1, kMaxHeadDim);
  c->linear_value_head_dim = text.int_at("linear_value_head_dim", 1, kMaxHeadDim);
  c->linear_conv_kernel_dim = text.int_or("linear_conv_kernel_dim", 4, 1, kMaxConvTaps);
  c->max_position_embeddings = text.int_or("max_position_embeddings", 32768, 1, kMaxPositions);
}

void check_multiple(const JsonNode& text, const char* big, int64_t big_value, const char* small,
                    int64_t small_value) {
  if (big_value % small_value == 0) return;
  text.at(big).fail("a multiple of " + std::string(small) + " = " + std::to_string(small_value));
}

void read_switches(const JsonNode& text, ModelConfig* c) {
  const double eps = text.number_or("rms_norm_eps", 1e-6);
  if (!(eps > 0.0 && eps < 1.0)) text.at("rms_norm_eps").fail("a number above 0 and below 1");
  c->rms_norm_eps = static_cast<float>(eps);
  if (c->rms_norm_eps == 0.0f) text.at("rms_norm_eps").fail("a number that is not 0 as f32");
  c->attention_bias = text.bool_or("attention_bias", false);
  if (text.string_or("hidden_act", "silu") != "silu") text.at("hidden_act").fail("silu");
  // Transformers always gates; a config that says otherwise describes another model.
  if (!text.bool_or("attn_output_gate", true)) text.at("attn_output_gate").fail("true");
  const std::string gate = text.string_or("output_gate_type", "silu");
  if (gate != "silu" && gate != "swish") text.at("output_gate_type").fail("silu or swish");
  // Every layer attends to all of the past; a window would be another model.
  const bool window = text.bool_or("use_sliding_window", false);
  if (const auto size = text.find("sliding_window")) size->as_int(0, kMaxPositions);
  if (window) text.at("use_sliding_window").fail("false: full attention layers have no window");
  // What the delta rule keeps its state in; here always f32.
  if (text.string_or("mamba_ssm_dtype", "float32") != "float32") {
    text.at("mamba_ssm_dtype").fail("float32");
  }
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (text.value().contains(key) && text.int_or(key, 0, 0, INT64_MAX) > 0) {
      text.at(key).fail("a dense model (no experts)");
    }
  }
}

}  // namespace

ModelConfig parse_model_config(const Json& config, const std::string& file) {
  const JsonNode root(config, file, "");
  root.require_object();
  ModelConfig c;
  c.file = file;
  c.architecture = read_architecture(root);
  const JsonNode text =
      c.architecture == kVision ? root.at("text_config", "an object with the text model") : root;
  text.require_object();
  if (c.architecture == kVision) check_model_type(text, kTextType, c.architecture);
  read_sizes(text, &c);
  check_multiple(text, "num_attention_heads", c.num_attention_heads, "num_key_value_heads",
                 c.num_key_value_heads);
  check_multiple(text, "linear_num_value_heads", c.linear_num_value_heads, "linear_num_key_heads",
                 c.linear_num_key_heads);
  read_switches(text, &c);
  read_rope(text, &c);
  c.layer_types = read_layer_types(text, c.num_hidden_layers);
  c.tie_word_embeddings = read_tie(root, text);
  return c;
}

ModelConfig load_model_config(const ModelDir& dir) {
  const std::string file = dir.label("config.json");
  return parse_model_config(parse_json(dir.read_text("config.json", kMaxConfigBytes), file), file);
}

void settle_tied_head(const ModelConfig& config, const std::string& prefix,
                      Checkpoint& checkpoint) {
  if (!config.tie_word_embeddings) return;
  const std::string embedding_name = prefix + "embed_tokens.weight";
  const TensorView* embedding = checkpoint.find(embedding_name);
  for (const std::string& name : checkpoint.names()) {
    if (!name.starts_with("lm_head.")) continue;
    const TensorView& head = *checkpoint.find(name);
    const bool same = name == "lm_head.weight" && embedding != nullptr &&
                      head.dtype == embedding->dtype && head.shape == embedding->shape &&
                      std::memcmp(head.data, embedding->data, head.bytes) == 0;
    if (!same) {
      throw InputError(std::string(head.file), name,
                       "no lm_head, or the bits of " + embedding_name + ", because " + config.file +
                           " has tie_word_embeddings true",
                       describe(head) + (name == "lm_head.weight" ? " with other content" : ""));
    }
    checkpoint.ignore(name, "tied: the same bits as " + embedding_name);
  }
}

std::string text_tensor_prefix(const ModelConfig& config, const Checkpoint& checkpoint) {
  const std::string nested = "model.language_model.";
  const bool has_nested = checkpoint.contains(nested + "embed_tokens.weight");
  const bool has_plain = checkpoint.contains("model.embed_tokens.weight");
  if (has_nested && has_plain) {
    throw InputError(checkpoint.source(), "model.embed_tokens.weight", "one set of text tensors",
                     "it and " + nested + "embed_tokens.weight");
  }
  if (has_nested) return nested;
  if (has_plain) return "model.";
  throw InputError(checkpoint.source(), "model.embed_tokens.weight",
                   "the embedding of " + config.architecture + " under this name or as " + nested +
                       "embed_tokens.weight",
                   "neither");
}

}  // namespace quern::smoke
