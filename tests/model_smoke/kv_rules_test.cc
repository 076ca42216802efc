// loading-rules.md B7-B11 and B13: the scales of an FP8 key/value cache (B12: kv_numerics_test.cc).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"
#include "model_smoke/kv_cache_plan.h"
#include "model_smoke/session.h"
#include "tests/model_smoke/float_model.h"
#include "tests/model_smoke/int4_model.h"
#include "tests/model_smoke/load_outcome.h"

namespace quern::smoke {
namespace {

using test::add_kv_scales;
using test::Json;
using test::logits_of;
using test::TempDir;
using test::TestModel;
using test::TestTensor;
using test::tiny_kv_model;

constexpr float kInf = std::numeric_limits<float>::infinity();
const std::string kLayer = "model.layers.1.self_attn.";

std::string f32(float x) {
  return std::string(reinterpret_cast<const char*>(&x), 4);
}

KvAlgorithm algorithm_of(const Json& quant) {
  return QuantConfig::parse({{"quantization_config", quant}}, "config.json").kv_algorithm();
}
Json with_kv(const char* key, const Json& kv) {
  return {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}, {key, kv}};
}

struct Planned {
  KvCachePlan plan;
  std::vector<std::string> warnings;
  std::vector<Checkpoint::Ignored> ignored;
};
Planned plan_of(const TestModel& model, KvCacheChoice choice = KvCacheChoice::kAuto) {
  const TempDir dir;
  model.write(dir);
  const ModelDir files(dir.path());
  Checkpoint checkpoint = Checkpoint::open(files);
  Planned out;
  out.plan = plan_kv_cache(QuantConfig::load(files), load_model_config(files), "model.", choice,
                           checkpoint);
  out.warnings = checkpoint.warnings();
  out.ignored = checkpoint.ignored();
  return out;
}

TEST(LoadingRules, B7_NamesOfKvScales) {
  const struct {
    const char* name;
    const char* attention;  ///< null: no scale of a cache
    bool is_key;
  } rows[] = {
      {"model.layers.3.self_attn.k_proj.k_scale", "model.layers.3.self_attn", true},
      {"model.layers.3.self_attn.v_proj.v_scale", "model.layers.3.self_attn", false},
      {"model.language_model.layers.3.self_attn.k_proj.k_scale",
       "model.language_model.layers.3.self_attn", true},
      {"model.layers.3.self_attn.k_scale", "model.layers.3.self_attn", true},
      {"model.layers.3.self_attn.k_proj.weight", nullptr, false},
      {"model.layers.3.self_attn.k_proj.input_scale", nullptr, false},
      {"model.layers.3.self_attn.k_proj.weight_scale", nullptr, false},
      {"model.layers.3.self_attn.k_proj.v_scale", nullptr, false},
      {"model.layers.3.self_attn.q_proj.k_scale", nullptr, false},
      {"model.layers.3.mlp.experts.0.k_proj.k_scale", nullptr, false},
      {"model.layers.3.cross_self_attn.k_proj.k_scale", nullptr, false},
      {"lm_head.k_scale", nullptr, false},
      {"lm_head.weight_scale", nullptr, false},
  };
  for (const auto& r : rows) {
    const std::optional<KvScaleName> found = kv_scale_name(r.name);
    ASSERT_EQ(found.has_value(), r.attention != nullptr) << r.name;
    if (!found) continue;
    EXPECT_EQ(found->attention, r.attention) << r.name;
    EXPECT_EQ(found->is_key, r.is_key) << r.name;
  }
}

/// Values reach the layer untouched, though q, k and v become one matrix.
TEST(LoadingRules, B7_ValuesReachTheirLayer) {
  TestModel m = tiny_kv_model({{"type", "float"}, {"num_bits", 8}});
  add_kv_scales(m, 0.0123456f, 0.765432f);
  const Planned p = plan_of(m);
  EXPECT_TRUE(p.plan.fp8);
  EXPECT_EQ(p.plan.layer[1], (KvScales{0.0123456f, 0.765432f}));
  EXPECT_TRUE(p.warnings.empty());
}

/// The same where q, k and v are NVFP4 and one matrix: the scales are those of parts that are no
/// tensors of their own any more, and what else the parts have stays theirs.
TEST(LoadingRules, B7_BeforeProjectionsAreJoined) {
  TestModel m = test::tiny_float_model({.file = test::FloatFile::kModelOptNvfp4});
  m.config["quantization_config"]["kv_cache_scheme"] = {{"type", "float"}, {"num_bits", 8}};
  add_kv_scales(m, 0.0123456f, 0.765432f);
  const TempDir dir;
  m.write(dir);
  CommonOptions options;
  options.model = dir.path();
  options.backend = "reference";
  options.act = "bf16";
  Session session(options);
  bool joined = false;
  for (const LinearOp* op : session.model().ops()) {
    joined = joined || op->name() == kLayer + "q_proj+" + kLayer + "k_proj+" + kLayer + "v_proj";
  }
  EXPECT_TRUE(joined);
  const ModelCache cache = session.model().make_cache();
  EXPECT_EQ(cache.layers[1].kv.dtype(), DType::kE4M3);
  EXPECT_EQ(cache.layers[1].kv.k_scale(), 0.0123456f);
  EXPECT_EQ(cache.layers[1].kv.v_scale(), 0.765432f);
  for (const Checkpoint::Ignored& t : session.ignored()) {
    EXPECT_TRUE(t.name.ends_with(".input_scale")) << t.name;
  }
}

TEST(LoadingRules, B8_Slots) {
  const KvScaleSlots declared(KvAlgorithm::kFp8, 4), other(KvAlgorithm::kOther, 4);
  EXPECT_TRUE(declared.exist());
  EXPECT_TRUE(other.exist());
  EXPECT_EQ(declared.at(3).value, (KvScales{-1.0f, -1.0f}));
  EXPECT_TRUE(declared.at(3).k_name.empty() && declared.at(3).v_name.empty());
  EXPECT_FALSE(KvScaleSlots(KvAlgorithm::kNone, 4).exist());
  EXPECT_EQ(QuantConfig::parse(Json::object(), "config.json").kv_algorithm(), KvAlgorithm::kNone);
  EXPECT_EQ(algorithm_of(with_kv("kv_cache_quant_algo", nullptr)), KvAlgorithm::kNone);
  EXPECT_EQ(algorithm_of(with_kv("kv_cache_quant_algo", "auto")), KvAlgorithm::kOther);
  EXPECT_EQ(algorithm_of(with_kv("kv_cache_quant_algo", "NVFP4")), KvAlgorithm::kOther);
}

TEST(LoadingRules, B8_WhenTheCacheIsFp8) {
  const Json fp8 = {{"type", "float"}, {"num_bits", 8}};
  const auto is_fp8 = [](const Json& kv, bool scales, KvCacheChoice choice) {
    TestModel m = tiny_kv_model(kv);
    if (scales) add_kv_scales(m, 0.5f, 0.5f);
    return plan_of(m, choice).plan.fp8;
  };
  using enum KvCacheChoice;
  EXPECT_TRUE(is_fp8(fp8, false, kAuto));
  EXPECT_TRUE(is_fp8(fp8, true, kAuto));
  EXPECT_FALSE(is_fp8(fp8, true, kBF16));
  EXPECT_FALSE(is_fp8("auto", false, kAuto));
  EXPECT_TRUE(is_fp8("auto", true, kAuto));
  EXPECT_TRUE(is_fp8("auto", false, kFp8));
  EXPECT_FALSE(is_fp8(Json(), true, kAuto));  // no slots: the scales are ignored
  EXPECT_TRUE(is_fp8(Json(), false, kFp8));
  // Unknown ones are as "auto" is; one scale of two is not both.
  for (const Json& unknown :
       {Json("auto"), Json("INT8"), Json("NVFP4"), Json(""), Json{{"type", "int"}, {"num_bits", 8}},
        Json{{"type", "float"}, {"num_bits", 4}}}) {
    EXPECT_FALSE(is_fp8(unknown, false, kAuto)) << unknown;
    EXPECT_TRUE(is_fp8(unknown, true, kAuto)) << unknown;
    EXPECT_TRUE(is_fp8(unknown, false, kFp8)) << unknown;
    EXPECT_FALSE(is_fp8(unknown, true, kBF16)) << unknown;
    for (const char* alone : {"k_proj.k_scale", "v_proj.v_scale"}) {
      TestModel m = tiny_kv_model(unknown);
      add_kv_scales(m, 0.5f, 0.5f);
      std::erase_if(m.tensors, [&](const TestTensor& t) {
        return t.name.ends_with("_scale") && !t.name.ends_with(alone);
      });
      EXPECT_FALSE(plan_of(m).plan.fp8) << unknown << " " << alone;
    }
  }
  for (const float bad : {kInf, std::nanf(""), 0.0f, -1.0f}) {
    TestModel m = tiny_kv_model("auto");
    add_kv_scales(m, bad, bad);
    const Planned p = plan_of(m);
    EXPECT_FALSE(p.plan.fp8) << bad;
    EXPECT_EQ(p.warnings.size(), 2u) << bad;
    EXPECT_TRUE(p.plan.taken.empty()) << bad;
  }
  TestModel unquantized = test::tiny_model();
  add_kv_scales(unquantized, 0.5f, 0.5f);
  const Planned p = plan_of(unquantized, kFp8);
  EXPECT_EQ(p.plan.layer[1], (KvScales{1.0f, 1.0f}));
  EXPECT_EQ(p.ignored.size(), 2u);
}

// ModelOpt's files of models whose cache alone is quantized.
TEST(LoadingRules, B8_QuantAlgoOfNull) {
  const Json quant = {{"quant_algo", nullptr}, {"kv_cache_quant_algo", "FP8"}};
  Json flat = quant;
  flat["quant_method"] = "modelopt";
  for (const int files : {1, 2, 3}) {  // hf_quant_config.json, config.json, both
    TestModel m = test::tiny_model();
    add_kv_scales(m, 0.5f, 0.25f);
    if ((files & 1) != 0) write_nested(m, {{"quantization", quant}});
    if ((files & 2) != 0) m.config["quantization_config"] = flat;
    const Planned p = plan_of(m);
    EXPECT_TRUE(p.plan.fp8) << files;
    EXPECT_EQ(p.plan.layer[1], (KvScales{0.5f, 0.25f})) << files;
    const test::Mode weights_alone{"reference", "f32", "auto", "bf16"};
    EXPECT_EQ(logits_of(m, weights_alone), logits_of(test::tiny_model(), weights_alone)) << files;
  }
  TestModel layers = test::tiny_model();
  Json more = quant;
  more["quantized_layers"] = {{"model.layers.0.mlp.up_proj", {{"quant_algo", "FP8"}}}};
  write_nested(layers, {{"quantization", more}});
  test::expect_says(test::outcome(layers), {"quantized_layers"}, "layers");
  TestModel codes = test::tiny_float_model({.file = test::FloatFile::kBothNvfp4});
  write_nested(codes, {{"quantization", quant}});
  test::expect_says(test::outcome(codes), {"quant_algo"}, "two files");
  codes.config.erase("quantization_config");
  test::expect_says(test::outcome(codes), {"weight_scale_2", "another format"}, "codes");
}

TEST(LoadingRules, B9_ShapesOfKvScales) {
  int rows = 0;
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{}, {1}, {2}, {1, 1}, {0}, {}, {1}, {2}, {1, 1}, {0}}) {
    const bool of_v = rows++ >= 5;
    TestModel m = tiny_kv_model("FP8");
    add_kv_scales(m, 0.5f, 0.25f);
    TestTensor& scale = m.tensor(kLayer + (of_v ? "v_proj.v_scale" : "k_proj.k_scale"));
    const std::string one = scale.bytes;
    scale.shape = shape;
    scale.bytes = shape == std::vector<int64_t>{2}   ? one + one
                  : shape == std::vector<int64_t>{0} ? std::string()
                                                     : one;
    const bool good = shape.empty() || shape == std::vector<int64_t>{1};
    try {
      EXPECT_EQ(plan_of(m).plan.layer[1], (KvScales{0.5f, 0.25f}));
      EXPECT_TRUE(good);
    } catch (const InputError& e) {
      EXPECT_FALSE(good) << e.what();
      EXPECT_NE(std::string(e.what()).find("_scale: expected shape [] or [1], got "),
                std::string::npos)
          << e.what();
      EXPECT_EQ(e.hint, "per-tensor KV scale expected");
    }
  }
}

/// -1 is what an empty slot holds, and a file may hold it too.
constexpr float kNoScales[] = {0.0f, -0.5f, -1.0f, kInf, -kInf, NAN};

TEST(LoadingRules, B10_AfterLoading) {
  const auto settled = [](std::optional<float> k, std::optional<float> v) {
    LoadedKvScales loaded;
    if (k) loaded = {{*k, loaded.value.v}, "x.k_scale", ""};
    if (v) {
      loaded.value.v = *v;
      loaded.v_name = "x.v_scale";
    }
    return settled_kv_scales(loaded, "f");
  };
  EXPECT_EQ(settled(0.5f, 0.25f), (KvScales{0.5f, 0.25f}));
  EXPECT_EQ(settled({}, {}), (KvScales{1, 1}));
  EXPECT_EQ(plan_of(tiny_kv_model("FP8")).plan.layer[1], (KvScales{1, 1}));
  EXPECT_EQ(settled(0.5f, {}), (KvScales{0.5f, 0.5f}));
  EXPECT_THROW((void)settled({}, 0.5f), InputError);
  for (const float bad : kNoScales) {
    EXPECT_EQ(settled(0.5f, bad), (KvScales{0.5f, 0.5f}));
    EXPECT_EQ(settled(bad, bad), (KvScales{1, 1}));
    EXPECT_THROW((void)settled(bad, 0.5f), InputError);
  }
}

/// Not fatal, and told by the name that the file has, in either spelling.
TEST(LoadingRules, B10_WhatIsNoScaleIsReported) {
  for (const float bad : kNoScales) {
    for (const bool short_name : {false, true}) {
      TestModel m = tiny_kv_model("FP8");
      add_kv_scales(m, 0.5f, bad);
      const std::string name = kLayer + (short_name ? "v_scale" : "v_proj.v_scale");
      m.tensor(kLayer + "v_proj.v_scale").name = name;
      const Planned p = plan_of(m);
      EXPECT_EQ(p.plan.layer[1], (KvScales{0.5f, 0.5f}));
      ASSERT_EQ(p.warnings.size(), 1u);
      EXPECT_NE(p.warnings[0].find(".safetensors: " + name + ": "), std::string::npos)
          << p.warnings[0];
      ASSERT_EQ(p.ignored.size(), 1u);
      EXPECT_EQ(p.ignored[0].name, name);
    }
  }
  TestModel m = tiny_kv_model("FP8");
  add_kv_scales(m, -1.0f, kInf);
  const Planned p = plan_of(m);
  EXPECT_EQ(p.plan.layer[1], (KvScales{1, 1}));
  ASSERT_EQ(p.warnings.size(), 2u);
  EXPECT_NE(p.warnings[0].find("k_proj.k_scale: -1 is no scale"), std::string::npos);
  EXPECT_NE(p.warnings[1].find("v_proj.v_scale: inf is no scale"), std::string::npos);
}

/// V alone is an error where it is used, and only there.
TEST(LoadingRules, B10_VAloneWithoutAnFp8Cache) {
  TestModel m = tiny_kv_model("FP8");
  add_kv_scales(m, 0.5f, 0.25f);
  std::erase_if(m.tensors, [](const TestTensor& t) { return t.name.ends_with(".k_scale"); });
  try {
    (void)plan_of(m);
    FAIL() << "V alone was taken";
  } catch (const InputError& e) {
    EXPECT_EQ(e.key, kLayer + "v_proj.v_scale");
    EXPECT_EQ(e.expected, "a K scale beside the V scale");
  }
  EXPECT_THROW((void)plan_of(m, KvCacheChoice::kFp8), InputError);
  const Planned p = plan_of(m, KvCacheChoice::kBF16);
  EXPECT_FALSE(p.plan.fp8);
  ASSERT_EQ(p.ignored.size(), 1u);
  EXPECT_EQ(p.ignored[0].reason, "a KV cache scale: the cache is not FP8");
  m.config["quantization_config"]["kv_cache_scheme"] = "auto";
  EXPECT_FALSE(plan_of(m).plan.fp8);
  EXPECT_THROW((void)plan_of(m, KvCacheChoice::kFp8), InputError);
}

TEST(LoadingRules, B11_WaysToSayFp8) {
  for (const char* name : {"FP8", "fp8", "FLOAT8", "Float8"}) {
    EXPECT_EQ(algorithm_of(with_kv("kv_cache_quant_algo", name)), KvAlgorithm::kFp8) << name;
    EXPECT_EQ(algorithm_of(with_kv("kv_cache_scheme", name)), KvAlgorithm::kFp8) << name;
  }
  EXPECT_EQ(algorithm_of(with_kv("kv_cache_scheme", {{"type", "float"}, {"num_bits", 8}})),
            KvAlgorithm::kFp8);
  EXPECT_EQ(algorithm_of(with_kv("kv_cache_scheme", {{"type", "int"}, {"num_bits", 8}})),
            KvAlgorithm::kOther);
  EXPECT_EQ(algorithm_of(with_kv("kv_cache_scheme", {{"type", "float"}, {"num_bits", 4}})),
            KvAlgorithm::kOther);
  const Json nested = {
      {"quantization",
       {{"quant_algo", "NVFP4"}, {"group_size", 16}, {"kv_cache_quant_algo", "FP8"}}}};
  for (const char* name : {"FP8", "fp8", "FLOAT8"}) {
    Json json = nested;
    json["quantization"]["kv_cache_quant_algo"] = name;
    EXPECT_EQ(QuantConfig::parse_nested(json, "f").kv_algorithm(), KvAlgorithm::kFp8) << name;
  }
  for (const char* name : {"INT8", "NVFP4", "auto"}) {
    Json json = nested;
    json["quantization"]["kv_cache_quant_algo"] = name;
    EXPECT_EQ(QuantConfig::parse_nested(json, "f").kv_algorithm(), KvAlgorithm::kOther) << name;
  }
  // In the nested file alone, beside a config.json that says nothing of it.
  TestModel both = test::tiny_float_model({.file = test::FloatFile::kBothNvfp4});
  Json beside = read_nested(both);
  beside["quantization"]["kv_cache_quant_algo"] = "FP8";
  write_nested(both, beside);
  EXPECT_TRUE(plan_of(both).plan.fp8);
  // In every kind of config.
  for (const test::FloatFile file : {test::FloatFile::kCtNvfp4, test::FloatFile::kFp8Block}) {
    TestModel m = test::tiny_float_model({.file = file});
    m.config["quantization_config"]["kv_cache_scheme"] = {
        {"type", "float"}, {"num_bits", 8}, {"strategy", "tensor"}, {"dynamic", false}};
    EXPECT_TRUE(plan_of(m).plan.fp8) << name_of(file);
  }
}

TEST(LoadingRules, B13_ScalesOfNoAttentionLayer) {
  TestModel m = tiny_kv_model("FP8");
  add_kv_scales(m, 0.5f, 0.25f);
  for (const char* name : {"model.layers.0.self_attn.k_proj.k_scale",  // a delta net
                           "model.layers.9.self_attn.v_proj.v_scale"}) {
    m.tensors.push_back({name, "F32", {}, f32(0.5f)});
  }
  const Planned p = plan_of(m);
  EXPECT_EQ(p.plan.layer[1], (KvScales{0.5f, 0.25f}));
  ASSERT_EQ(p.warnings.size(), 2u);
  EXPECT_NE(p.warnings[0].find("model.layers.0.self_attn.k_proj.k_scale"), std::string::npos);
  EXPECT_NE(p.warnings[1].find("model.layers.9.self_attn.v_proj.v_scale"), std::string::npos);
  const TempDir dir;
  m.write(dir);
  EXPECT_NO_THROW((void)logits_of(dir.path(), {"reference", "f32"}));
}

TEST(LoadingRules, B13_TwoScalesOfOneLayer) {
  TestModel m = tiny_kv_model("FP8");
  add_kv_scales(m, 0.5f, 0.25f);
  m.tensors.push_back({kLayer + "k_scale", "F32", {1}, f32(0.5f)});
  EXPECT_THROW((void)plan_of(m), InputError);
}

}  // namespace
}  // namespace quern::smoke
