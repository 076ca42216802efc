#include "tests/model_smoke/test_model.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace quern::smoke::test {
namespace {

constexpr int64_t kHidden = 16;
constexpr int64_t kVocab = 260;

uint16_t bf16_bits(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return static_cast<uint16_t>(u >> 16);
}

int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

// Small numbers that differ from element to element and from tensor to tensor.
TestTensor bf16_tensor(const std::string& name, std::vector<int64_t> shape) {
  const int64_t n = count_of(shape);
  uint32_t state = 2166136261u;
  for (const char c : name) state = (state ^ static_cast<unsigned char>(c)) * 16777619u;
  std::string bytes;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    const float v = (static_cast<float>(state >> 24) - 128.0f) / 512.0f;
    const uint16_t b = bf16_bits(v);
    bytes += static_cast<char>(b & 255);
    bytes += static_cast<char>(b >> 8);
  }
  return {name, "BF16", std::move(shape), std::move(bytes)};
}

Json tiny_config() {
  return Json::parse(R"({
    "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text",
    "vocab_size": 260, "hidden_size": 16, "intermediate_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
    "linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention", "full_attention"], "full_attention_interval": 2,
    "rms_norm_eps": 1e-6, "hidden_act": "silu", "attention_bias": false,
    "max_position_embeddings": 512, "tie_word_embeddings": false, "partial_rotary_factor": 0.25,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                        "partial_rotary_factor": 0.25, "mrope_section": [1, 1, 0]},
    "eos_token_id": 259, "bos_token_id": 259
  })");
}

std::vector<TestTensor> tiny_tensors() {
  std::vector<TestTensor> t;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    t.push_back(bf16_tensor(name, std::move(shape)));
  };
  add("model.embed_tokens.weight", {kVocab, kHidden});
  add("model.norm.weight", {kHidden});
  add("lm_head.weight", {kVocab, kHidden});
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    add(layer + "input_layernorm.weight", {kHidden});
    add(layer + "post_attention_layernorm.weight", {kHidden});
    add(layer + "mlp.gate_proj.weight", {24, kHidden});
    add(layer + "mlp.up_proj.weight", {24, kHidden});
    add(layer + "mlp.down_proj.weight", {kHidden, 24});
  }
  const std::string linear = "model.layers.0.linear_attn.";
  add(linear + "in_proj_qkv.weight", {32, kHidden});
  add(linear + "in_proj_z.weight", {16, kHidden});
  add(linear + "in_proj_b.weight", {2, kHidden});
  add(linear + "in_proj_a.weight", {2, kHidden});
  add(linear + "conv1d.weight", {32, 1, 4});
  add(linear + "A_log", {2});
  add(linear + "dt_bias", {2});
  add(linear + "norm.weight", {8});
  add(linear + "out_proj.weight", {kHidden, 16});
  const std::string full = "model.layers.1.self_attn.";
  add(full + "q_proj.weight", {64, kHidden});
  add(full + "k_proj.weight", {16, kHidden});
  add(full + "v_proj.weight", {16, kHidden});
  add(full + "o_proj.weight", {kHidden, 32});
  add(full + "q_norm.weight", {16});
  add(full + "k_norm.weight", {16});
  return t;
}

}  // namespace

std::string length_prefix(uint64_t n) {
  std::string s;
  for (int i = 0; i < 8; ++i) s += static_cast<char>((n >> (8 * i)) & 255);
  return s;
}

std::string safetensors_raw(std::string_view header, std::string_view data) {
  return length_prefix(header.size()) + std::string(header) + std::string(data);
}

std::string safetensors_bytes(const std::vector<TestTensor>& tensors) {
  Json header = Json::object();
  std::string data;
  for (const TestTensor& t : tensors) {
    header[t.name] = {{"dtype", t.dtype},
                      {"shape", t.shape},
                      {"data_offsets", {data.size(), data.size() + t.bytes.size()}}};
    data += t.bytes;
  }
  std::string text = header.dump();
  while (text.size() % 8 != 0) text += ' ';
  return safetensors_raw(text, data);
}

TestTensor& TestModel::tensor(std::string_view name) {
  for (TestTensor& t : tensors) {
    if (t.name == name) return t;
  }
  throw std::logic_error("no tensor " + std::string(name));
}

void TestModel::write(const TempDir& dir) const {
  std::map<std::string, std::string> files = {{"config.json", config.dump(1)},
                                              {"generation_config.json", generation.dump(1)},
                                              {"tokenizer.json", tokenizer.dump(1)},
                                              {"model.safetensors", safetensors_bytes(tensors)}};
  for (const auto& [name, bytes] : raw) files[name] = bytes;
  for (const std::string& name : absent) files.erase(name);
  for (const auto& [name, bytes] : files) dir.write(name, bytes);
  if (after) after(dir);
}

Json TestModel::shard(int shards) {
  Json index = {{"metadata", Json::object()}, {"weight_map", Json::object()}};
  uint64_t total = 0;
  for (int s = 0; s < shards; ++s) {
    const std::string name =
        "model-0000" + std::to_string(s + 1) + "-of-0000" + std::to_string(shards) + ".safetensors";
    std::vector<TestTensor> part;
    for (size_t i = static_cast<size_t>(s); i < tensors.size(); i += static_cast<size_t>(shards)) {
      part.push_back(tensors[i]);
      index["weight_map"][tensors[i].name] = name;
      total += tensors[i].bytes.size();
    }
    raw[name] = safetensors_bytes(part);
  }
  index["metadata"]["total_size"] = total;
  raw["model.safetensors.index.json"] = index.dump(1);
  absent.push_back("model.safetensors");
  return index;
}

std::string byte_char(int byte) {
  const auto stands_for_itself = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  int code = byte;
  if (!stands_for_itself(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += !stands_for_itself(b);
  }
  if (code < 128) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
}

Json tiny_tokenizer() {
  Json vocab = Json::object();
  for (int b = 0; b < 256; ++b) vocab[byte_char(b)] = b;
  vocab["he"] = 256;
  vocab["ll"] = 257;
  vocab["hell"] = 258;
  const std::string pattern =
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
      "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", false},
                           {"use_regex", false}};
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  Json t;
  t["version"] = "1.0";
  t["truncation"] = nullptr;
  t["padding"] = nullptr;
  t["added_tokens"] = Json::array({{{"id", 259},
                                    {"content", "<|end|>"},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}}});
  t["normalizer"] = {{"type", "NFC"}};
  t["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}};
  t["post_processor"] = nullptr;
  t["decoder"] = byte_level;
  t["model"] = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", false},
                {"vocab", vocab},
                {"merges", Json::array({"h e", "l l", "he ll"})}};
  return t;
}

TestModel tiny_model() {
  TestModel m;
  m.config = tiny_config();
  m.generation = {{"eos_token_id", 259}, {"bos_token_id", 259}};
  m.tokenizer = tiny_tokenizer();
  m.tensors = tiny_tensors();
  return m;
}

TestModel tiny_int8_model() {
  TestModel m = tiny_model();
  Json ignore = Json::array({"lm_head"});
  std::vector<TestTensor> out;
  for (TestTensor& t : m.tensors) {
    const bool narrow = t.name.find("in_proj_a") != std::string::npos ||
                        t.name.find("in_proj_b") != std::string::npos;
    if (narrow) ignore.push_back(t.name.substr(0, t.name.rfind('.')));
    if (narrow || t.name.find("_proj") == std::string::npos) {
      out.push_back(std::move(t));
      continue;
    }
    const int64_t rows = t.shape[0];
    std::string codes;
    for (size_t i = 0; i + 1 < t.bytes.size(); i += 2) codes += t.bytes[i + 1] & 63;
    std::string scales;
    for (int64_t r = 0; r < rows; ++r) {
      const float s = 0.001f * static_cast<float>(r + 1);
      scales.append(reinterpret_cast<const char*>(&s), 4);
    }
    out.push_back({t.name, "I8", t.shape, codes});
    out.push_back({t.name + "_scale", "F32", {rows, 1}, scales});
  }
  m.tensors = std::move(out);
  m.config["quantization_config"] = {
      {"quant_method", "w8a8_int8"}, {"activation_scheme", "dynamic"}, {"ignore", ignore}};
  return m;
}

TestModel tiny_compressed_int8_model() {
  TestModel m = tiny_int8_model();
  const Json ignore = m.config["quantization_config"]["ignore"];
  m.config["quantization_config"] = {
      {"quant_method", "compressed-tensors"},
      {"format", "int-quantized"},
      {"ignore", ignore},
      {"config_groups",
       {{"group_0",
         {{"targets", {"Linear"}},
          {"weights", {{"num_bits", 8}, {"strategy", "channel"}}},
          {"input_activations", {{"num_bits", 8}, {"strategy", "token"}, {"dynamic", true}}}}}}}};
  return m;
}

TestModel with_biases(TestModel model) {
  model.config["attention_bias"] = true;
  std::vector<TestTensor> more;
  for (const TestTensor& t : model.tensors) {
    for (const char* module :
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"}) {
      const size_t at = t.name.find(std::string(module) + ".weight");
      if (at == std::string::npos || t.name.find("scale") != std::string::npos) continue;
      more.push_back(bf16_tensor(t.name.substr(0, at) + module + ".bias", {t.shape[0]}));
    }
  }
  if (more.size() != 4) throw std::logic_error("with_biases: four projections were expected");
  model.tensors.insert(model.tensors.end(), more.begin(), more.end());
  return model;
}

TestModel mixed_model(const std::string& module) {
  TestModel model = tiny_int8_model();
  const auto is_of = [&](const TestTensor& t) {
    return t.name.find(module + ".weight") != std::string::npos;
  };
  std::erase_if(model.tensors, is_of);
  for (const TestTensor& t : tiny_model().tensors) {
    if (!is_of(t)) continue;
    model.tensors.push_back(t);
    model.config["quantization_config"]["ignore"].push_back(
        t.name.substr(0, t.name.size() - std::string(".weight").size()));
  }
  return model;
}

}  // namespace quern::smoke::test
