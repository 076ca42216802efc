// reliability.md 5.2 "config.json"; bug log F14.
#include <sys/stat.h>

#include <filesystem>

#include "tests/model_smoke/malformed_case.h"

namespace quern::smoke::test {
namespace {

constexpr char kFile[] = "config.json";

MalformedCase set_case(std::string name, std::string key, Json value, std::string reason) {
  return {"config_" + name,
          [key, value](TestModel* m) { m->config[key] = value; },
          {kFile, key, std::move(reason)}};
}

MalformedCase rope_case(std::string name, std::string key, Json value, std::string reason) {
  return {"config_rope_" + name,
          [key, value](TestModel* m) {
            m->config.erase(key);  // else the two places contradict each other first
            m->config["rope_parameters"][key] = value;
          },
          {kFile, key, std::move(reason)}};
}

MalformedCase text_case(std::string name, std::string text, std::vector<std::string> says) {
  says.insert(says.begin(), kFile);
  return {"config_" + name, [text](TestModel* m) { m->raw[kFile] = text; }, std::move(says)};
}

// Every size at every value that is no size.
void add_integers(std::vector<MalformedCase>* out) {
  const char* keys[] = {"vocab_size",
                        "hidden_size",
                        "intermediate_size",
                        "num_hidden_layers",
                        "num_attention_heads",
                        "num_key_value_heads",
                        "head_dim",
                        "linear_num_key_heads",
                        "linear_num_value_heads",
                        "linear_key_head_dim",
                        "linear_value_head_dim"};
  const struct {
    const char* name;
    Json value;
  } values[] = {{"0", 0},
                {"minus_1", -1},
                {"2_31", uint64_t{1} << 31},
                {"2_63", uint64_t{1} << 63},
                {"1e99", 1e99},
                {"1_point_5", 1.5},
                {"string", "8"},
                {"null", nullptr},
                {"array", Json::array()},
                {"array_of_8", Json::array({8})},
                {"true", true},
                {"object", Json::object()}};
  for (const char* key : keys) {
    for (const auto& v : values) {
      out->push_back(
          set_case(std::string(key) + "_" + v.name, key, v.value, "an integer from 1 to"));
    }
    out->push_back({std::string("config_") + key + "_missing",
                    [key](TestModel* m) { m->config.erase(key); },
                    {kFile, key, "nothing"}});
  }
  for (const auto& v : values) {
    const std::string suffix = std::string("_") + v.name;
    out->push_back(set_case("linear_conv_kernel_dim" + suffix, "linear_conv_kernel_dim", v.value,
                            "an integer from 1 to"));
  }
}

void add_relations(std::vector<MalformedCase>* out) {
  out->push_back(set_case("kv_heads_not_dividing", "num_key_value_heads", 3, "a multiple of"));
  out->push_back(set_case("more_kv_heads", "num_key_value_heads", 4, "num_attention_heads"));
  out->push_back(set_case("linear_heads_not_dividing", "linear_num_value_heads", 3, ""));
  out->back().bend = [](TestModel* m) {
    m->config["linear_num_key_heads"] = 2;
    m->config["linear_num_value_heads"] = 3;
  };
  out->push_back(set_case("vocab_smaller_than_embedding", "vocab_size", 100, ""));
  out->back().bend = [](TestModel* m) {
    m->config["vocab_size"] = 100;
    m->config["eos_token_id"] = m->config["bos_token_id"] = 1;
    m->generation = Json::object();
  };
  out->back().says = {"model.embed_tokens.weight", "shape [100, 16]", "[260, 16]"};
  out->push_back(set_case("head_dim_of_other_weights", "head_dim", 8, ""));
  out->back().says = {"model.layers.1.self_attn", "shape"};
  out->push_back(set_case("layer_types_short", "layer_types", Json::array({"full_attention"}),
                          "num_hidden_layers = 2"));
  out->push_back(set_case("layer_types_unknown", "layer_types",
                          Json::array({"linear_attention", "sliding_attention"}),
                          "full_attention"));
  out->push_back(set_case("layer_types_number", "layer_types", Json::array({1, 2}), "a string"));
  out->push_back(set_case("layer_types_object", "layer_types", Json::object(), "an array"));
  out->push_back({"config_interval_0",
                  [](TestModel* m) {
                    m->config.erase("layer_types");
                    m->config["full_attention_interval"] = 0;
                  },
                  {kFile, "full_attention_interval", "an integer from 1"}});
  out->push_back(set_case("eos_past_vocab", "eos_token_id", 260, "from 0 to 259"));
  out->back().bend = [](TestModel* m) {
    m->config["eos_token_id"] = 260;
    m->generation = Json::object();
  };
  for (const Json& bad : {Json(-1), Json("x"), Json::array({1, 5000}), Json(1.5)}) {
    out->push_back({"generation_eos_" + std::to_string(out->size()),
                    [bad](TestModel* m) { m->generation["eos_token_id"] = bad; },
                    {"generation_config.json", "eos_token_id", "from 0 to 259"}});
  }
  out->push_back({"generation_not_json",
                  [](TestModel* m) { m->raw["generation_config.json"] = "{"; },
                  {"generation_config.json", "valid JSON"}});
}

void add_numbers(std::vector<MalformedCase>* out) {
  for (const Json& bad : {Json(0), Json(-1e-6), Json(1), Json(1e-60)}) {
    out->push_back(set_case("eps_" + std::to_string(out->size()), "rms_norm_eps", bad, "a number"));
  }
  out->push_back(set_case("eps_string", "rms_norm_eps", "1e-6", "a number"));
  out->push_back(set_case("eps_null", "rms_norm_eps", nullptr, "a number"));
  out->push_back(rope_case("theta_0", "rope_theta", 0, "a number above 1"));
  out->push_back(rope_case("theta_negative", "rope_theta", -1e4, "a number above 1"));
  out->push_back(rope_case("theta_1e300", "rope_theta", 1e300, "a number above 1"));
  out->push_back(rope_case("theta_string", "rope_theta", "1e4", "a number"));
  out->push_back(rope_case("factor_0", "partial_rotary_factor", 0, "above 0 and at most 1"));
  out->push_back(rope_case("factor_2", "partial_rotary_factor", 2, "above 0 and at most 1"));
  out->push_back(rope_case("factor_odd", "partial_rotary_factor", 0.2, "an even rotary width"));
  out->push_back(rope_case("factor_tiny", "partial_rotary_factor", 1e-9, "an even rotary width"));
  out->push_back(rope_case("yarn", "rope_type", "yarn", "default"));
  out->push_back(rope_case("old_type", "type", "linear", "default"));
  out->push_back(rope_case("sections_short", "mrope_section", Json::array({1}), "an array of 3"));
  out->push_back(
      rope_case("sections_negative", "mrope_section", Json::array({1, 1, -1}), "an integer"));
  out->push_back(set_case("rope_number", "rope_parameters", 7, "an object"));
  out->push_back(set_case("rope_both_spellings_differ", "rope_scaling",
                          Json{{"rope_type", "yarn"}, {"factor", 4}},
                          "the same as rope_parameters"));
  out->push_back(text_case("nul_then_more", std::string("{}\0{}", 5), {"byte 2", "a NUL byte"}));
  out->push_back(set_case("act_gelu", "hidden_act", "gelu", "silu"));
  out->push_back(set_case("bias_number", "attention_bias", 1, "true or false"));
  out->push_back(set_case("no_output_gate", "attn_output_gate", false, "true"));
  out->push_back(set_case("experts", "num_experts", 8, "a dense model"));
  out->push_back(set_case("tie_string", "tie_word_embeddings", "yes", "true or false"));
}

void add_architectures(std::vector<MalformedCase>* out) {
  const std::string known = "Qwen3_5ForCausalLM or Qwen3_5ForConditionalGeneration";
  const auto one = [](const char* name) { return Json::array({name}); };
  out->push_back(set_case("arch_llama", "architectures", one("LlamaForCausalLM"), known));
  out->push_back(set_case("arch_moe", "architectures", one("Qwen3_5MoeForCausalLM"), known));
  out->push_back(set_case("arch_string", "architectures", "Qwen3_5ForCausalLM", "an array"));
  out->push_back(set_case("arch_empty", "architectures", Json::array(), "one architecture"));
  out->push_back(set_case("arch_number", "architectures", Json::array({1}), "a string"));
  out->push_back({"config_arch_none",
                  [](TestModel* m) {
                    m->config.erase("architectures");
                    m->config.erase("model_type");
                  },
                  {kFile, "model_type", "nothing"}});
  out->push_back({"config_model_type_unknown",
                  [](TestModel* m) {
                    m->config.erase("architectures");
                    m->config["model_type"] = "llama";
                  },
                  {kFile, "model_type", "qwen3_5"}});
  out->push_back(set_case("no_text_config", "text_config", nullptr, ""));
  out->back() = {"config_no_text_config",
                 [](TestModel* m) {
                   m->config["architectures"] = Json::array({"Qwen3_5ForConditionalGeneration"});
                   m->config["model_type"] = "qwen3_5";
                 },
                 {kFile, "text_config", "nothing"}};
  out->push_back({"config_tie_contradiction",
                  [](TestModel* m) {
                    Json outer = {{"architectures", {"Qwen3_5ForConditionalGeneration"}},
                                  {"tie_word_embeddings", true},
                                  {"text_config", m->config}};
                    m->config = outer;
                  },
                  {kFile, "text_config.tie_word_embeddings", "top level"}});
}

// Keys that are known hold a good value or are an error, also where another key has the last word;
// two that contradict each other are an error that names both.
void add_contradictions(std::vector<MalformedCase>* out) {
  for (const Json& bad : {Json(0), Json(-4), Json("4"), Json(2.0), Json(nullptr), Json(true)}) {
    out->push_back(set_case("interval_beside_list_" + std::to_string(out->size()),
                            "full_attention_interval", bad, "an integer from 1 to"));
  }
  out->push_back(set_case("interval_against_list", "full_attention_interval", 4, "layer_types"));
  for (const Json& bad : {Json(0), Json(2), Json("0.25"), Json(nullptr)}) {
    out->push_back(set_case("outer_factor_" + std::to_string(out->size()), "partial_rotary_factor",
                            bad, "a number"));
  }
  out->push_back(set_case("outer_factor_differs", "partial_rotary_factor", 0.5,
                          "rope_parameters.partial_rotary_factor, 0.25"));
  for (const Json& bad : {Json(0), Json(1e300), Json("1e4"), Json(nullptr)}) {
    out->push_back(
        set_case("outer_theta_" + std::to_string(out->size()), "rope_theta", bad, "a number"));
  }
  out->push_back(
      set_case("outer_theta_differs", "rope_theta", 1e6, "rope_parameters.rope_theta, 10000.0"));
  out->push_back(set_case("sliding_window", "use_sliding_window", true, "false"));
  out->push_back(set_case("sliding_window_string", "use_sliding_window", "no", "true or false"));
  out->push_back(set_case("sliding_window_size", "sliding_window", -1, "an integer from 0"));
  out->push_back(set_case("state_dtype", "mamba_ssm_dtype", "bfloat16", "float32"));
  out->push_back(set_case("model_type_of_another", "model_type", "llama", "Qwen3_5ForCausalLM"));
  out->push_back(set_case("model_type_of_vision", "model_type", "qwen3_5", "qwen3_5_text"));
  for (const Json& bad : {Json(-1), Json(260), Json("x"), Json::array({1, 5000})}) {
    const std::string suffix = std::to_string(out->size());
    out->push_back(set_case("outer_eos_" + suffix, "eos_token_id", bad, "from 0 to 259"));
    if (!bad.is_array()) {
      out->push_back(set_case("outer_bos_" + suffix, "bos_token_id", bad, "from 0 to 259"));
    }
  }
  out->push_back({"config_text_model_type",
                  [](TestModel* m) {
                    Json text = m->config;
                    text["model_type"] = "qwen3_text";
                    m->config = {{"architectures", {"Qwen3_5ForConditionalGeneration"}},
                                 {"model_type", "qwen3_5"},
                                 {"text_config", text}};
                  },
                  {kFile, "text_config.model_type", "qwen3_5_text"}});
}

// Tied embeddings with an output head in the files: only the same bits are no contradiction.
void add_tied_heads(std::vector<MalformedCase>* out) {
  const auto tied = [out](const std::string& name, std::function<void(TestModel*)> bend,
                          const std::string& tensor) {
    out->push_back({"config_tied_head_" + name,
                    [bend](TestModel* m) {
                      m->config["tie_word_embeddings"] = true;
                      bend(m);
                    },
                    {"model.safetensors", tensor, "tie_word_embeddings", "model.embed_tokens"}});
  };
  tied(
      "differs", [](TestModel*) {}, "lm_head.weight");
  tied(
      "one_bit",
      [](TestModel* m) {
        TestTensor& head = m->tensor("lm_head.weight");
        head.bytes = m->tensor("model.embed_tokens.weight").bytes;
        head.bytes.back() = static_cast<char>(head.bytes.back() ^ 1);
      },
      "lm_head.weight");
  tied(
      "f32",
      [](TestModel* m) {
        TestTensor& head = m->tensor("lm_head.weight");
        head.dtype = "F32";
        head.bytes = std::string(head.bytes.size() * 2, '\x01');
      },
      "lm_head.weight");
  tied(
      "bias",
      [](TestModel* m) {
        TestTensor& head = m->tensor("lm_head.weight");
        head.name = "lm_head.bias";
        head.shape = {260};
        head.bytes.resize(520);
      },
      "lm_head.bias");
}

void add_files(std::vector<MalformedCase>* out) {
  out->push_back(text_case("empty", "", {"valid JSON"}));
  out->push_back(text_case("array", "[]", {"an object"}));
  out->push_back(text_case("nan", R"({"rms_norm_eps": NaN})", {"valid JSON"}));
  out->push_back(text_case("bad_utf8", "{\"a\": \"\xc3\x28\"}", {"UTF-8"}));
  out->push_back(text_case("byte_order_mark", "\xef\xbb\xbf{}", {"byte order mark"}));
  out->push_back(
      text_case("duplicate", R"({"head_dim":1,"head_dim":2})", {"head_dim", "duplicate"}));
  out->push_back(text_case("deep", std::string(100'000, '['), {"64 levels"}));
  out->push_back(text_case("deep_objects",
                           [] {
                             std::string s;
                             for (int i = 0; i < 100; ++i) s += "{\"a\":";
                             return s;
                           }(),
                           {"64 levels"}));
  out->push_back(
      text_case("escape", R"({"a\u001b[31m":{"architectures":[1]}, "x" 1})", {"valid JSON"}));
  out->push_back(
      {"config_missing", [](TestModel* m) { m->absent.push_back(kFile); }, {kFile, "none"}});
  out->push_back({"config_too_long",
                  [](TestModel* m) {
                    m->after = [](const TempDir& d) {
                      std::filesystem::resize_file(d.file(kFile), 17'000'000);
                    };
                  },
                  {kFile, "at most 16000000 bytes"}});
  out->push_back({"config_fifo",
                  [](TestModel* m) {
                    m->absent.push_back(kFile);
                    m->after = [](const TempDir& d) {
                      if (mkfifo(d.file(kFile).c_str(), 0600) != 0)
                        throw std::runtime_error("mkfifo");
                    };
                  },
                  {kFile, "a FIFO"}});
  out->push_back({"config_link_out",
                  [](TestModel* m) {
                    m->absent.push_back(kFile);
                    m->after = [](const TempDir& d) {
                      std::filesystem::create_symlink("/etc/passwd", d.file(kFile));
                    };
                  },
                  {kFile, "absolute path"}});
}

}  // namespace

std::vector<MalformedCase> malformed_config() {
  std::vector<MalformedCase> out;
  add_integers(&out);
  add_relations(&out);
  add_numbers(&out);
  add_architectures(&out);
  add_contradictions(&out);
  add_tied_heads(&out);
  add_files(&out);
  return out;
}

}  // namespace quern::smoke::test
