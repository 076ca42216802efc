// FP8 and NVFP4: configs that say what cannot be, tensors that do not fit them, scales of a cache.
#include <cmath>
#include <limits>

#include "tests/model_smoke/float_model.h"
#include "tests/model_smoke/malformed_case.h"

namespace quern::smoke::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const std::string kUp = "model.layers.0.mlp.up_proj";
const std::string kAttention = "model.layers.1.self_attn.";

std::string f32(float x) {
  return std::string(reinterpret_cast<const char*>(&x), 4);
}

TestModel model_of(FloatFile file) {
  const bool blocks = file == FloatFile::kFp8Block;
  return tiny_float_model({.file = file, .block_n = blocks ? 8 : -1, .block_k = blocks ? 8 : -1});
}

class Corpus {
 public:
  explicit Corpus(FloatFile file) : file_(file) {}

  void add(const std::string& name, std::function<void(TestModel*)> bend,
           std::vector<std::string> says) {
    const FloatFile file = file_;
    cases_.push_back({std::string(name_of(file_)) + "_" + name,
                      [file, bend](TestModel* m) {
                        *m = model_of(file);
                        bend(m);
                      },
                      std::move(says)});
  }
  /// The quantization_config with `value` at a JSON pointer.
  void config(const std::string& name, const std::string& pointer, const Json& value,
              const std::string& reason) {
    add(name,
        [pointer, value](TestModel* m) {
          m->config["quantization_config"][Json::json_pointer(pointer)] = value;
        },
        {"config.json", pointer.substr(pointer.rfind('/') + 1), reason});
  }
  void tensor(const std::string& name, const std::string& suffix,
              std::function<void(TestTensor*)> bend, std::vector<std::string> says) {
    says.push_back(kUp + suffix);
    says.push_back("model.safetensors");
    add(
        name, [suffix, bend](TestModel* m) { bend(&m->tensor(kUp + suffix)); }, std::move(says));
  }
  void scalar(const std::string& name, const std::string& suffix, float value,
              const std::string& reason) {
    tensor(name, suffix, [value](TestTensor* t) { t->bytes = f32(value); }, {reason});
  }
  void byte(const std::string& name, const std::string& suffix, size_t at, int value,
            const std::string& reason) {
    tensor(name, suffix, [=](TestTensor* t) { t->bytes[at] = static_cast<char>(value); },
           {reason, "at index " + std::to_string(at)});
  }
  /// hf_quant_config.json with `value` at a JSON pointer.
  void nested(const std::string& name, const std::string& pointer, const Json& value,
              std::vector<std::string> says) {
    says.push_back("hf_quant_config.json");
    add(
        name,
        [pointer, value](TestModel* m) {
          Json json = read_nested(*m);
          json[Json::json_pointer(pointer)] = value;
          write_nested(*m, json);
        },
        std::move(says));
  }
  size_t size() const { return cases_.size(); }
  void append_to(std::vector<MalformedCase>* out) {
    for (MalformedCase& c : cases_) out->push_back(std::move(c));
  }

 private:
  FloatFile file_;
  std::vector<MalformedCase> cases_;
};

void add_fp8_block(std::vector<MalformedCase>* out) {
  Corpus c(FloatFile::kFp8Block);
  c.config("one_size", "/weight_block_size", {128}, "two sizes");
  c.config("three_sizes", "/weight_block_size", {128, 128, 1}, "two sizes");
  c.config("size_0", "/weight_block_size", {0, 8}, "expected");
  c.config("size_negative", "/weight_block_size", {8, -1}, "expected");
  c.config("size_text", "/weight_block_size", {"8", 8}, "expected");
  c.config("size_number", "/weight_block_size", 8, "an array");
  c.config("fmt", "/fmt", "e5m2", "e4m3");
  c.config("activations", "/activation_scheme", "none", "dynamic or static");
  c.config("list_text", "/modules_to_not_convert", "lm_head", "an array");
  c.config("kv_number", "/kv_cache_scheme", 8, "the name of an algorithm");
  const std::string scale = ".weight_scale_inv";  // [3, 2]
  c.tensor("scale_transposed", scale,
           [](TestTensor* t) {
             t->shape = {2, 3};
           },
           {"[3, 2], one for each block of 8 x 8"});
  c.tensor("scale_vector", scale, [](TestTensor* t) { t->shape = {6}; }, {"[3, 2]"});
  c.tensor("scale_short", scale,
           [](TestTensor* t) {
             t->shape = {2, 2};
             t->bytes.resize(16);
           },
           {"[3, 2]"});
  c.tensor("scale_integers", scale, [](TestTensor* t) { t->dtype = "I32"; }, {"F32, BF16 or F16"});
  const auto set = [&](const char* name, float x, const char* reason) {
    c.tensor(name, scale, [x](TestTensor* t) { t->bytes.replace(8, 4, f32(x)); },
             {reason, "at index 2"});
  };
  set("scale_negative", -0.5f, "not negative");
  set("scale_nan", std::nanf(""), "NaN");
  set("scale_infinite", kInf, "infinity");
  c.byte("code_nan", ".weight", 5, 0x7f, "0x7f");
  c.byte("code_negative_nan", ".weight", 7, 0xff, "0xff");
  c.tensor("weight_e5m2", ".weight", [](TestTensor* t) { t->dtype = "F8_E5M2"; },
           {"no scale beside"});
  c.tensor("weight_turned", ".weight",
           [](TestTensor* t) {
             t->shape = {16, 24};
           },
           {"F8_E4M3 [24, 16]"});
  c.add("scale_under_both_names",
        [](TestModel* m) {
          TestTensor both = m->tensor(kUp + ".weight_scale_inv");
          both.name = kUp + ".weight_scale";
          m->tensors.push_back(both);
        },
        {kUp + ".weight_scale", "one tensor of scales", kUp + ".weight_scale_inv as well"});
  c.append_to(out);
}

void add_fp8(std::vector<MalformedCase>* out) {
  Corpus c(FloatFile::kFp8);
  const std::string scale = ".weight_scale";
  c.tensor("two_scales", scale,
           [](TestTensor* t) {
             t->shape = {2};
             t->bytes += t->bytes;
           },
           {"[] or [1], or [24, 1] or [24]"});
  c.tensor("scale_row", scale,
           [](TestTensor* t) {
             t->shape = {1, 24};
             t->bytes = std::string(96, '\1');
           },
           {"[24, 1] or [24]"});
  c.scalar("scale_negative", scale, -1, "not negative");
  c.scalar("scale_nan", scale, std::nanf(""), "NaN");
  c.add("blocks_after_all",
        [](TestModel* m) {
          m->config["quantization_config"]["weight_block_size"] = {8, 8};
        },
        {"_proj", ".weight_scale", "one for each block of 8 x 8, got F32 []"});
  c.append_to(out);
}

void add_compressed(std::vector<MalformedCase>* out) {
  Corpus c(FloatFile::kCtFp8);
  const std::string w = "/config_groups/group_0/weights/";
  c.config("bits", w + "num_bits", 4, "8");
  c.config("type", w + "type", "int", "float");
  c.config("asymmetric", w + "symmetric", false, "true");
  c.config("dynamic", w + "dynamic", true, "false");
  c.config("strategy", w + "strategy", "tensor_group", "tensor, channel, group or block");
  const auto scheme = [&](const std::string& name, const Json& changes, const char* reason) {
    c.add(name,
          [changes](TestModel* m) {
            m->config["quantization_config"]["config_groups"]["group_0"]["weights"].update(changes);
          },
          {"config.json", "config_groups.group_0.weights.", reason});
  };
  scheme("group_of_none", {{"strategy", "group"}}, "group_size: expected an integer");
  scheme("group_of_0", {{"strategy", "group"}, {"group_size", 0}}, "group_size");
  scheme("group_and_block", {{"strategy", "group"}, {"group_size", 8}, {"block_structure", {8, 8}}},
         "block_structure: expected null with strategy group");
  scheme("block_of_none", {{"strategy", "block"}}, "block_structure: expected an array");
  scheme("block_and_group", {{"strategy", "block"}, {"group_size", 8}, {"block_structure", {8, 8}}},
         "group_size: expected null with strategy block");
  for (const char* text : {"", "8", "8x", "x8", "8x8x8", "8X8", "0x8", "8x-1", " 8x8",
                           "99999999999999999999x8", "8x4294967296"}) {
    scheme("block_text_" + std::to_string(c.size()),
           {{"strategy", "block"}, {"block_structure", text}},
           "block_structure: expected two sizes, of N and of K");
  }
  for (const char* sizes : {"[8]", "[8,8,8]", "[0,8]", "[8,-1]", "[8.5,8]", "{}"}) {
    const Json json = Json::parse(sizes);
    scheme("block_sizes_" + std::to_string(c.size()),
           {{"strategy", "block"}, {"block_structure", json}}, "block_structure");
  }
  c.add("blocks_of_another_size",
        [](TestModel* m) {
          m->config["quantization_config"]["config_groups"]["group_0"]["weights"].update(
              {{"strategy", "block"}, {"block_structure", {8, 8}}});
        },
        {"_proj", ".weight_scale", "one for each block of 8 x 8, got F32 [1]"});
  c.add("block_scale_missing",
        [](TestModel* m) {
          m->config["quantization_config"]["config_groups"]["group_0"]["weights"].update(
              {{"strategy", "block"}, {"block_structure", {8, 8}}});
          std::erase_if(m->tensors,
                        [](const TestTensor& t) { return t.name.ends_with(".weight_scale"); });
        },
        {".weight_scale: expected a scale for"});
  c.config("grouped", w + "group_size", 128, "null with strategy tensor");
  c.config("structured", w + "block_structure", {128, 128}, "null with strategy tensor");
  c.config("integer_activations", "/config_groups/group_0/input_activations",
           {{"num_bits", 8}, {"type", "int"}}, "expected");
  c.config("kv_dynamic", "/kv_cache_scheme",
           {{"num_bits", 8}, {"type", "float"}, {"dynamic", true}}, "expected");
  c.config("kv_channels", "/kv_cache_scheme",
           {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}}, "expected");
  c.add("channels_of_a_tensor",
        [](TestModel* m) {
          m->config["quantization_config"]["config_groups"]["group_0"]["weights"]["strategy"] =
              "channel";
        },
        {".weight_scale", "F32 [1]", "config.json and the tensor disagree"});
  c.append_to(out);
  Corpus n(FloatFile::kCtNvfp4);
  n.config("bits", w + "num_bits", 8, "4");
  n.config("group", w + "group_size", 32, "16");
  n.config("strategy", w + "strategy", "group", "tensor_group");
  n.config("activations", "/config_groups/group_0/input_activations",
           {{"num_bits", 8}, {"type", "float"}}, "4");
  n.add("int4_format",
        [](TestModel* m) { m->config["quantization_config"]["format"] = "pack-quantized"; },
        {"config.json", "config_groups.group_0.weights", "expected int"});
  n.scalar("global_0", ".weight_global_scale", 0, "a finite positive scale");
  n.scalar("global_tiny", ".weight_global_scale", 0x1p-130f, "a finite positive scale");
  n.tensor("codes_words", ".weight_packed",
           [](TestTensor* t) {
             t->dtype = "I32";
             t->shape = {24, 2};
           },
           {"the codes that belong to"});
  n.append_to(out);
}

void add_nvfp4(std::vector<MalformedCase>* out) {
  Corpus c(FloatFile::kModelOptNvfp4);
  c.config("algorithm_number", "/quant_algo", 4, "a string");
  c.config("algorithm_null", "/quant_algo", nullptr, "nothing beside a quant_algo of null");
  c.config("group_0", "/group_size", 0, "expected");
  c.config("group_32", "/group_size", 32, "16");
  c.config("group_text", "/group_size", "16", "an integer");
  c.config("groups_array", "/config_groups", Json::array(), "an object");
  c.config("bits", "/config_groups/group_0/weights/num_bits", 8, "4");
  c.config("type", "/config_groups/group_0/weights/type", "int", "float");
  c.config("list_number", "/ignore", {3}, "a string");
  c.tensor("weight_short", ".weight",
           [](TestTensor* t) {
             t->shape = {24, 4};
             t->bytes.resize(96);
           },
           {"U8 [24, 8]"});
  c.tensor("scale_f32", ".weight_scale",
           [](TestTensor* t) {
             t->dtype = "F32";
             t->bytes.resize(96, '\0');
           },
           {"F8_E4M3 [24, 1]"});
  c.tensor("scale_swizzled", ".weight_scale",
           [](TestTensor* t) {
             t->shape = {128, 4};
             t->bytes.resize(512, '\0');
           },
           {"F8_E4M3 [24, 1]"});
  c.byte("scale_nan", ".weight_scale", 3, 0x7f, "0x7f");
  c.byte("scale_negative_nan", ".weight_scale", 4, 0xff, "0xff");
  c.byte("scale_negative", ".weight_scale", 4, 0xb8, "not negative, got 0xb8");
  c.byte("scale_least_negative", ".weight_scale", 23, 0x81, "not negative, got 0x81");
  const std::string global = ".weight_scale_2";
  c.scalar("global_0", global, 0, "a finite positive scale");
  c.scalar("global_negative", global, -1, "a finite positive scale");
  c.scalar("global_nan", global, std::nanf(""), "a finite positive scale");
  c.scalar("global_infinite", global, kInf, "a finite positive scale");
  c.tensor("global_two", global,
           [](TestTensor* t) {
             t->shape = {2};
             t->bytes += t->bytes;
           },
           {"F32 [] or [1]"});
  c.tensor("global_bf16", global,
           [](TestTensor* t) {
             t->dtype = "BF16";
             t->bytes.resize(2);
           },
           {"F32 [] or [1]"});
  c.add("pre_quant_scale",
        [](TestModel* m) {
          m->tensors.push_back({kUp + ".pre_quant_scale", "BF16", {16}, std::string(32, '\1')});
        },
        {kUp + ".pre_quant_scale", "expected quant_algo NVFP4_AWQ", "NVFP4 in "});
  c.append_to(out);
}

void add_nested(std::vector<MalformedCase>* out) {
  Corpus c(FloatFile::kBothNvfp4);
  c.nested("algorithm", "/quantization/quant_algo", "FP8", {"quant_algo", "modelopt NVFP4"});
  c.nested("list_shorter", "/quantization/exclude_modules", Json::array(),
           {"exclude_modules", "no \"lm_head\""});
  c.nested("list_longer", "/quantization/exclude_modules/-", "model.embed_tokens",
           {"exclude_modules", "\"model.embed_tokens\" more"});
  c.add("nested_kv",
        [](TestModel* m) {
          m->config["quantization_config"]["kv_cache_scheme"] = "FP8";
          Json nested = read_nested(*m);
          nested["quantization"]["kv_cache_quant_algo"] = "INT8";
          write_nested(*m, nested);
        },
        {"hf_quant_config.json", "quantization.kv_cache_quant_algo, \"INT8\"",
         "quantization_config.kv_cache_scheme, \"FP8\""});
  c.add(
      "two_kv_algorithms",
      [](TestModel* m) {
        m->config["quantization_config"]["kv_cache_scheme"] = {{"type", "float"}, {"num_bits", 8}};
        m->config["quantization_config"]["kv_cache_quant_algo"] = "NVFP4";
      },
      {"kv_cache_quant_algo, \"NVFP4\"", "kv_cache_scheme, {\"num_bits\":8"});
  c.nested("group", "/quantization/group_size", 8, {"group_size", "16"});
  c.nested("list_text", "/quantization/exclude_modules", "lm_head",
           {"exclude_modules", "an array"});
  c.nested("no_object", "/quantization", 3, {"quantization", "an object"});
  c.add("nested_array", [](TestModel* m) { write_nested(*m, Json::array()); },
        {"hf_quant_config.json", "an object"});
  c.add("nested_no_json", [](TestModel* m) { m->raw["hf_quant_config.json"] = "{"; },
        {"hf_quant_config.json"});
  c.add("nested_beside_fp8",
        [](TestModel* m) {
          m->config["quantization_config"] = {{"quant_method", "fp8"}};
        },
        {"hf_quant_config.json", "quant_algo", "fp8"});
  c.append_to(out);
}

void add_kv_cache(std::vector<MalformedCase>* out) {
  Corpus c(FloatFile::kFp8Block);
  const auto with_scales = [](std::function<void(TestModel*)> bend) {
    return [bend](TestModel* m) {
      m->config["quantization_config"]["kv_cache_scheme"] = "FP8";
      add_kv_scales(*m, 0.5f, 0.25f);
      bend(m);
    };
  };
  const std::string k = kAttention + "k_proj.k_scale";
  c.add("kv_two_values", with_scales([k](TestModel* m) {
          m->tensor(k).shape = {2};
          m->tensor(k).bytes += f32(0.5f);
        }),
        {k, "per-tensor KV scale expected"});
  c.add("kv_integers", with_scales([k](TestModel* m) { m->tensor(k).dtype = "I32"; }),
        {k, "F32, BF16 or F16"});
  c.add("kv_v_alone", with_scales([k](TestModel* m) {
          std::erase_if(m->tensors, [&](const TestTensor& t) { return t.name == k; });
        }),
        {kAttention + "v_proj.v_scale", "a K scale beside the V scale"});
  c.add("kv_v_beside_nan",
        with_scales([k](TestModel* m) { m->tensor(k).bytes = f32(std::nanf("")); }),
        {kAttention + "v_proj.v_scale", "a K scale beside the V scale"});
  c.add("kv_twice", with_scales([](TestModel* m) {
          m->tensors.push_back({kAttention + "k_scale", "F32", {1}, f32(0.5f)});
        }),
        {"k_scale", "a second one"});
  c.append_to(out);
}

}  // namespace

std::vector<MalformedCase> malformed_float() {
  std::vector<MalformedCase> out;
  add_fp8_block(&out);
  add_fp8(&out);
  add_compressed(&out);
  add_nvfp4(&out);
  add_nested(&out);
  add_kv_cache(&out);
  return out;
}

}  // namespace quern::smoke::test
