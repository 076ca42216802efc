// Every kind of quantization config and checkpoint, damaged at random: it is refused, or it means
// what it meant. A crash, a hang and a silent change of numbers are failures that print their seed.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "model_smoke/input_error.h"
#include "model_smoke/quant_config.h"
#include "tests/model_smoke/damage.h"
#include "tests/model_smoke/float_model.h"
#include "tests/model_smoke/load_outcome.h"

namespace quern::smoke::test {
namespace {

size_t below(Rng* rng, size_t n) {
  return n == 0 ? 0 : static_cast<size_t>((*rng)() % n);
}
template <typename T>
const T& one_of(Rng* rng, const std::vector<T>& list) {
  return list[below(rng, list.size())];
}

/// FP8 attention, NVFP4 elsewhere.
TestModel mixed() {
  TestModel m = tiny_float_model({.file = FloatFile::kBothNvfp4,
                                  .block_n = -1,
                                  .block_k = -1,
                                  .form = [](const std::string& module) {
                                    return module.find("self_attn") != std::string::npos
                                               ? FloatFile::kModelOptFp8
                                               : FloatFile::kModelOptNvfp4;
                                  }});
  Json layers = Json::object();
  for (const TestTensor& t : m.tensors) {
    const std::string module = t.name.substr(0, t.name.rfind('.'));
    if (t.dtype == "U8") layers[module] = {{"quant_algo", "NVFP4"}, {"group_size", 16}};
    if (t.dtype == "F8_E4M3" && t.name.ends_with(".weight")) {
      layers[module] = {{"quant_algo", "FP8"}};
    }
  }
  Json& flat = m.config["quantization_config"];
  flat["quant_algo"] = "MIXED_PRECISION";
  flat.erase("config_groups");
  flat["quantized_layers"] = layers;
  Json nested = read_nested(m);
  nested["quantization"]["quant_algo"] = "MIXED_PRECISION";
  nested["quantization"]["quantized_layers"] = layers;
  write_nested(m, nested);
  return m;
}

TestModel awq_of_modelopt() {
  TestModel m = tiny_float_model({.file = FloatFile::kModelOptNvfp4});
  m.config["quantization_config"]["quant_algo"] = "NVFP4_AWQ";
  m.tensors.push_back(pre_quant_scale("model.layers.0.mlp.up_proj", std::vector<float>(16, 1.5f)));
  return m;
}

/// One model of every family.
const std::vector<TestModel>& families() {
  static const std::vector<TestModel> all = [] {
    std::vector<TestModel> list = {tiny_model(), tiny_int8_model(), tiny_compressed_int8_model(),
                                   mixed(), awq_of_modelopt()};
    for (const FloatFile file :
         {FloatFile::kFp8Block, FloatFile::kFp8, FloatFile::kCtFp8, FloatFile::kModelOptFp8,
          FloatFile::kModelOptNvfp4, FloatFile::kNestedNvfp4, FloatFile::kBothNvfp4,
          FloatFile::kCtNvfp4}) {
      const int64_t block = file == FloatFile::kFp8Block ? 8 : -1;
      list.push_back(tiny_float_model({.file = file, .block_n = block, .block_k = block}));
    }
    list.push_back(tiny_float_model({.file = FloatFile::kCtFp8, .block_n = 8, .block_k = 8}));
    for (const Int4File file :
         {Int4File::kGptq, Int4File::kGptqV2, Int4File::kAwq, Int4File::kCompressedTensors}) {
      for (const bool symmetric : {true, false}) {
        list.push_back(tiny_int4_model({file, 8, symmetric, file != Int4File::kAwq && !symmetric}));
      }
    }
    return list;
  }();
  return all;
}

/// Patterns that lists have, should not have, or that a matcher may stumble over.
const std::vector<std::string>& patterns() {
  static const std::vector<std::string> list = {"",
                                                ".",
                                                "..",
                                                "*",
                                                "**",
                                                "*.*.*.*.*.*.*.*.*.*b",
                                                "?",
                                                "[",
                                                "[a-z]*",
                                                "Linear",
                                                "linear",
                                                "lm_head",
                                                "lm_head.",
                                                "model",
                                                "model.layers.0",
                                                "model.layers.0.",
                                                "model.layers.0.mlp",
                                                "model.layers.*.mlp.up_proj",
                                                "up_proj",
                                                "*up_proj",
                                                "mlp*",
                                                "*mlp*",
                                                "qkv_proj",
                                                "*qkv_proj",
                                                "model.layers.1.self_attn.qkv_proj",
                                                "gate_up_proj",
                                                "in_proj_qkvz",
                                                "in_proj_ba",
                                                "*in_proj_b*",
                                                "fused_qkv_a_proj_with_mqa",
                                                "language_model.",
                                                "language_model",
                                                "model.language_model.layers.0.mlp",
                                                "language_model.model.layers.0.mlp.up_proj",
                                                "language_model.language_model.model",
                                                "re:",
                                                "re:.*",
                                                "re:.*up_proj",
                                                "re:.*mlp\\.(up|gate)_proj$",
                                                "re:up_proj",
                                                "re:(",
                                                "re:[",
                                                "re:\\",
                                                "re:(a+)+$",
                                                "re:(.*)*x",
                                                "re:(?:model|lm)(?:.|..)*z",
                                                "re:^model\\.layers\\.0\\..*",
                                                "re:(?i)MODEL.*",
                                                "re:(?=model).*",
                                                "re:.{1000000}",
                                                "re:\\d+",
                                                "-:.*",
                                                "+:.*",
                                                std::string(3000, '*'),
                                                std::string(3000, 'a'),
                                                std::string("nul\0byte", 8),
                                                "\xff\xfe",
                                                "model.layers.0.mlp.up_proj.weight"};
  return list;
}

/// A list, a rule or an entry more, somewhere in the config.
void add_pattern(Json* quant, Rng* rng) {
  const std::string& text = one_of(rng, patterns());
  if (text.find('\xff') != std::string::npos) return;  // no JSON: damage() has those
  static const std::vector<std::string> lists = {"ignore", "modules_to_not_convert",
                                                 "ignored_layers", "exclude_modules"};
  static const std::vector<Json> schemes = {
      {{"quant_algo", "FP8"}}, {{"quant_algo", "NVFP4"}, {"group_size", 16}},
      Json::object(),          nullptr,
      {{"bits", 4}},           {{"bits", 8}},
      {{"group_size", 4}},     {{"sym", false}}};
  if (!quant->is_object()) return;
  switch (below(rng, 4)) {
    case 0:
      (*quant)["dynamic"][text] = one_of(rng, schemes);
      return;
    case 1:
      (*quant)["quantized_layers"][text] = one_of(rng, schemes);
      return;
    case 2:
      if (Json* groups = quant->contains("config_groups") ? &(*quant)["config_groups"] : nullptr;
          groups != nullptr && groups->is_object() && !groups->empty()) {
        Json& targets = (*groups->begin())["targets"];
        if (targets.is_array() || targets.is_null()) targets.push_back(text);
      }
      return;
    default:
      Json& list = (*quant)[one_of(rng, lists)];
      if (list.is_array() || list.is_null()) list.push_back(text);
  }
}

const std::vector<std::string>& modules() {
  static const std::vector<std::string> list = {"",
                                                ".",
                                                "lm_head",
                                                "a..b",
                                                "qkv_proj",
                                                "x.qkv_proj",
                                                "model.layers.0.mlp.up_proj",
                                                "model.layers.0.mlp.gate_up_proj",
                                                "model.layers.1.self_attn.qkv_proj",
                                                "model.layers.1.self_attn.k_proj",
                                                "model.layers.0.linear_attn.in_proj_qkvz",
                                                "model.layers.0.linear_attn.in_proj_ba",
                                                "model.language_model.layers.0.mlp.up_proj",
                                                "language_model.model.layers.0.mlp.up_proj",
                                                "language_model.",
                                                ".language_model.",
                                                "model.layers.0.mlp.experts.127.gate_up_proj",
                                                "a.fused_qkv_a_proj_with_mqa",
                                                std::string(20'000, '.'),
                                                std::string(20'000, 'a')};
  return list;
}

void ask_everything(const QuantConfig& q) {
  for (const std::string& module : modules()) {
    const auto ask = [&](auto&& question) {
      try {
        question();
      } catch (const InputError& e) {
        EXPECT_FALSE(e.expected.empty());
        EXPECT_LT(std::string(e.what()).size(), 60'000u);
      }
    };
    ask([&] { (void)q.excluded_by(module); });
    ask([&] { (void)q.method_of(module); });
    ask([&] { (void)q.int4_scheme_of(module); });
    ask([&] { (void)q.fp8_scheme_of(module); });
    ask([&] { (void)q.pre_quant_scale_of(module); });
  }
}

/// Two orders above what a case takes: sanitizers and a loaded machine included.
constexpr std::chrono::seconds kLimit(20);

TEST(QuantFuzz, ConfigsOfEveryFamily) {
  run_cases("quantization configs", 1500, [&](Rng* rng) {
    const TestModel& m = one_of(rng, families());
    Json flat = m.config, nested;
    if (m.raw.contains("hf_quant_config.json")) nested = read_nested(m);
    for (size_t i = below(rng, 4); i > 0; --i) {
      if (flat.contains("quantization_config")) add_pattern(&flat["quantization_config"], rng);
      if (!nested.is_null()) add_pattern(&nested["quantization"], rng);
    }
    if (below(rng, 2) == 0) damage_tree(&flat, rng);
    if (!nested.is_null() && below(rng, 2) == 0) damage_tree(&nested, rng);
    const auto start = std::chrono::steady_clock::now();
    bool thrown = false;
    try {
      std::string text = flat.dump();
      if (below(rng, 6) == 0) text = damage(std::move(text), rng);
      ask_everything(QuantConfig::parse(parse_json(text, "config.json"), "config.json"));
    } catch (const InputError&) {
      thrown = true;
    }
    if (!nested.is_null())
      ask_everything(QuantConfig::parse_nested(nested, "hf_quant_config.json"));
    EXPECT_LT(std::chrono::steady_clock::now() - start, kLimit);
    if (thrown) throw InputError("config.json", "", "a good config", "a damaged one");
  });
}

/// What another value of a key means is another model, and no file can tell.
bool says_what_no_file_can_tell(const std::string& key) {
  for (const char* part : {"kv_cache", "checkpoint_format", "block", "group_size", "strategy"}) {
    if (key.find(part) != std::string::npos) return true;
  }
  return false;
}

/// Replaces, drops or adds a member of an object somewhere in the tree, but for those keys.
void bend_config(Json* at, Rng* rng) {
  static const std::vector<Json> values = {nullptr,
                                           true,
                                           false,
                                           0,
                                           1,
                                           4,
                                           8,
                                           16,
                                           1.5,
                                           "",
                                           "x",
                                           "FP8",
                                           "NVFP4",
                                           "NVFP4_AWQ",
                                           "W4A16_NVFP4",
                                           "MIXED_PRECISION",
                                           "gptq",
                                           "awq",
                                           "fp8",
                                           "modelopt",
                                           "compressed-tensors",
                                           "w8a8_int8",
                                           "int-quantized",
                                           "pack-quantized",
                                           "float-quantized",
                                           "nvfp4-pack-quantized",
                                           "static",
                                           "dynamic",
                                           "int",
                                           "float",
                                           "Linear",
                                           Json::array(),
                                           Json::object(),
                                           Json::array({"Linear"}),
                                           Json::array({"lm_head"}),
                                           Json::array({"*"})};
  for (int depth = 0; depth < 6 && at->is_structured() && !at->empty(); ++depth) {
    auto it = at->begin();
    std::advance(it, static_cast<std::ptrdiff_t>(below(rng, at->size())));
    if (at->is_object() && says_what_no_file_can_tell(it.key())) return;
    const bool inner = it->is_structured() && !it->empty();
    if (inner && below(rng, 3) != 0) {
      at = &*it;
      continue;
    }
    if (below(rng, 5) == 0) {
      at->erase(it);
    } else {
      *it = one_of(rng, values);
    }
    return;
  }
}

/// The logits of a family's model as it is.
const std::vector<float>& good_logits(size_t family) {
  static std::map<size_t, std::vector<float>> known;
  if (!known.contains(family)) known[family] = logits_of(families()[family], {"reference", "f32"});
  return known[family];
}

void expect_refused_or_same(const TestModel& m, size_t family, const std::string& what) {
  const auto start = std::chrono::steady_clock::now();
  ::testing::internal::CaptureStderr();
  std::vector<float> logits;
  try {
    logits = logits_of(m, {"reference", "f32"});
  } catch (...) {
    (void)::testing::internal::GetCapturedStderr();
    throw;
  }
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(logits == good_logits(family)) << "family " << family << ": other numbers, " << what;
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLimit);
}

/// The tensors are as they were, so a config that is not refused has one reading: theirs.
TEST(QuantFuzz, ADamagedConfigIsRefusedOrMeansTheSame) {
  run_cases("damaged configs", 300, [&](Rng* rng) {
    const size_t family = below(rng, families().size());
    TestModel m = families()[family];
    const bool has_nested = m.raw.contains("hf_quant_config.json");
    Json nested;
    if (has_nested) nested = read_nested(m);
    Json* quant =
        m.config.contains("quantization_config") ? &m.config["quantization_config"] : nullptr;
    if (has_nested && (quant == nullptr || below(rng, 2) == 0)) quant = &nested["quantization"];
    if (quant == nullptr) quant = &(m.config["quantization_config"] = Json::object());
    if (below(rng, 3) == 0) {
      add_pattern(quant, rng);
    } else {
      bend_config(quant, rng);
    }
    const std::string what = m.config.value("quantization_config", Json()).dump() + nested.dump();
    if (has_nested) write_nested(m, nested);
    expect_refused_or_same(m, family, what);
  });
}

/// A tensor gone, renamed or added: refused, or what it said was said before.
TEST(QuantFuzz, DamagedTensorsAreRefusedOrMeanTheSame) {
  static const std::vector<std::string> suffixes = {".weight",
                                                    ".weight_packed",
                                                    ".qweight",
                                                    ".qzeros",
                                                    ".scales",
                                                    ".g_idx",
                                                    ".weight_scale",
                                                    ".weight_scale_inv",
                                                    ".weight_scale_2",
                                                    ".weight_global_scale",
                                                    ".weight_zero_point",
                                                    ".weight_shape",
                                                    ".weight_g_idx",
                                                    ".input_scale",
                                                    ".input_global_scale",
                                                    ".bias",
                                                    ".k_scale",
                                                    ".v_scale",
                                                    ".scale",
                                                    ".scale_inv"};
  run_cases("damaged tensors", 300, [&](Rng* rng) {
    const size_t family = below(rng, families().size());
    TestModel m = families()[family];
    std::vector<size_t> parts;
    for (size_t i = 0; i < m.tensors.size(); ++i) {
      if (m.tensors[i].name.find("_proj") != std::string::npos) parts.push_back(i);
    }
    const size_t at = one_of(rng, parts);
    const std::string before = m.tensors[at].name;
    const std::string module = before.substr(0, before.rfind('.'));
    std::string what = before;
    // Without its factors an AWQ module is one whose writer folded them into a norm.
    const bool factors = before.ends_with(".pre_quant_scale");
    switch (factors ? 2 : below(rng, 4)) {
      case 0:
        m.tensors.erase(m.tensors.begin() + static_cast<std::ptrdiff_t>(at));
        what += " dropped";
        break;
      case 1: {
        m.tensors[at].name = module + one_of(rng, suffixes);
        what += " renamed to " + m.tensors[at].name;
        break;
      }
      case 2: {
        TestTensor more = m.tensors[at];
        more.name = module + one_of(rng, suffixes);
        what += " again as " + more.name;
        m.tensors.push_back(more);
        break;
      }
      default: {
        static const std::vector<std::string> types = {
            "F32", "BF16", "F16", "I8", "U8", "I32", "F8_E4M3", "F8_E5M2", "F8_E8M0", "I64"};
        // Mostly a wrong size. BF16 for F16 is another model that no file can tell.
        const std::string& type = one_of(rng, types);
        if (type.ends_with("F16") && m.tensors[at].dtype.ends_with("F16")) break;
        m.tensors[at].dtype = type;
        what += " as " + m.tensors[at].dtype;
      }
    }
    expect_refused_or_same(m, family, what);
  });
}

}  // namespace
}  // namespace quern::smoke::test
