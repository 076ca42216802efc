// ModelOpt's MIXED_PRECISION: an algorithm for each module.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"
#include "model_smoke/session.h"
#include "tests/model_smoke/float_model.h"
#include "tests/model_smoke/load_outcome.h"

namespace quern::smoke {
namespace {

using test::expect_says;
using test::FloatFile;
using test::FloatMatrix;
using test::Json;
using test::logits_of;
using test::Mode;
using test::outcome;
using test::TempDir;
using test::TestModel;
using test::TestTensor;
using test::tiny_float_model;

const Mode kF32{"reference", "f32"}, kBF16{"reference", "bf16"};
constexpr char kLayers[] = "quantized_layers";
const std::string kUp = test::kUp, kDown = "model.layers.0.mlp.down_proj";

/// As published: projections of attention FP8, one of them by channels and one by blocks, those of
/// the MLP NVFP4, and what is in neither list plain.
FloatFile mixed_form(const std::string& module) {
  return module.find("mlp.") != std::string::npos ? FloatFile::kModelOptNvfp4
                                                  : FloatFile::kModelOptFp8;
}
void mixed_scales(const std::string& module, FloatMatrix& m) {
  if (!m.block_scale.empty()) return;
  m.block_n = m.block_k = -1;
  if (module.ends_with("k_proj")) m.block_n = 1;
  if (module.ends_with("o_proj")) m.block_n = m.block_k = 5;
  m.scale.resize(static_cast<size_t>(m.scale_rows() * m.scale_cols()), 0.07f);
}
Json entry_of(const std::string& module) {
  if (mixed_form(module) == FloatFile::kModelOptNvfp4) {
    return {{"quant_algo", module.ends_with("down_proj") ? "W4A16_NVFP4" : "NVFP4"},
            {"group_size", 16}};
  }
  if (module.ends_with("k_proj")) return {{"quant_algo", "FP8_PER_CHANNEL_PER_TOKEN"}};
  if (module.ends_with("o_proj")) return {{"quant_algo", "FP8_PB_WO"}, {"group_size", 5}};
  return {{"quant_algo", "FP8"}};
}

/// Every module with codes has an entry.
Json entries(const TestModel& m) {
  Json layers = Json::object();
  for (const TestTensor& t : m.tensors) {
    if (!t.name.ends_with(".weight") || (t.dtype != "U8" && t.dtype != "F8_E4M3")) continue;
    const std::string module = t.name.substr(0, t.name.rfind('.'));
    layers[module] = entry_of(module);
  }
  return layers;
}

enum class Where : unsigned char { kFlat, kNested, kBoth, kLayersNested };

TestModel mixed_model(Where where, bool numbers = false) {
  TestModel m = tiny_float_model({.file = FloatFile::kBothNvfp4,
                                  .bend = mixed_scales,
                                  .form = mixed_form,
                                  .numbers = numbers});
  if (numbers) return m;
  Json& flat = m.config["quantization_config"];
  flat["quant_algo"] = "MIXED_PRECISION";
  flat.erase("config_groups");
  flat[kLayers] = entries(m);
  Json nested = read_nested(m);
  nested["quantization"]["quant_algo"] = "MIXED_PRECISION";
  nested["quantization"].erase("group_size");
  nested["quantization"][kLayers] = entries(m);
  write_nested(m, nested);
  if (where == Where::kFlat) m.raw.erase("hf_quant_config.json");
  if (where == Where::kNested) m.config.erase("quantization_config");
  if (where == Where::kLayersNested) flat.erase(kLayers);
  return m;
}

TEST(MixedPrecision, ModulesHaveTheNumbersOfTheirFormats) {
  const std::vector<float> expected = logits_of(mixed_model(Where::kFlat, true), kF32);
  for (const Where where : {Where::kFlat, Where::kNested, Where::kBoth, Where::kLayersNested}) {
    EXPECT_EQ(logits_of(mixed_model(where), kF32), expected) << static_cast<int>(where);
  }
  // ModelOpt's own files keep the axes of the blocks, others do not; both names multiply.
  TestModel m = mixed_model(Where::kFlat);
  TestTensor& scale = m.tensor("model.layers.1.self_attn.o_proj.weight_scale");
  ASSERT_EQ(scale.shape, (std::vector<int64_t>{4, 7}));
  scale.shape = {4, 1, 7, 1};
  EXPECT_EQ(logits_of(m, kF32), expected);
  m.tensor("model.layers.1.self_attn.o_proj.weight_scale").name += "_inv";
  EXPECT_EQ(logits_of(m, kF32), expected);
  EXPECT_NO_THROW((void)logits_of(m, kBF16));
  for (const Mode& run : test::jit_modes()) test::expect_ops_hold(m, run);
}

/// Published ones have the output layer in NVFP4.
TEST(MixedPrecision, TheOutputLayerToo) {
  TestModel m = mixed_model(Where::kFlat), numbers = mixed_model(Where::kFlat, true);
  const std::vector<int64_t> shape = m.tensor("lm_head.weight").shape;
  FloatMatrix w{.n = shape[0], .k = shape[1]};
  for (int64_t i = 0; i < w.n * w.k; ++i) w.code.push_back(static_cast<uint8_t>(i * 7 % 16));
  for (int64_t i = 0; i < w.n; ++i) w.block_scale.push_back(static_cast<uint8_t>(0x30 + i % 8));
  w.global = 0.019f;
  std::erase_if(m.tensors, [](const TestTensor& t) { return t.name == "lm_head.weight"; });
  for (const TestTensor& t : float_tensors("lm_head", w, FloatFile::kModelOptNvfp4)) {
    m.tensors.push_back(t);
  }
  numbers.tensor("lm_head.weight") = float_tensors("lm_head", w, FloatFile::kPlain).front();
  Json& quant = m.config["quantization_config"];
  std::vector<std::string> plain = quant["ignore"];
  std::erase(plain, "lm_head");
  quant["ignore"] = plain;
  quant[kLayers]["lm_head"] = {{"quant_algo", "W4A16_NVFP4"}, {"group_size", 16}};
  EXPECT_EQ(logits_of(m, kF32), logits_of(numbers, kF32));
  for (const Mode& run : test::jit_modes()) test::expect_ops_hold(m, run);
}

TEST(MixedPrecision, NamesOfJoinsAndOfModulesAbove) {
  const std::vector<float> expected = logits_of(mixed_model(Where::kFlat, true), kF32);
  TestModel m = mixed_model(Where::kFlat);
  Json& layers = m.config["quantization_config"][kLayers];
  const Json nvfp4 = {{"quant_algo", "NVFP4"}};  // 16: the default of this form
  layers.erase("model.layers.0.mlp.gate_proj");
  layers.erase("model.layers.0.mlp.up_proj");
  layers["model.language_model.layers.0.mlp.gate_up_proj"] = nvfp4;
  for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
    layers.erase("model.layers.1.mlp." + std::string(name));
  }
  layers["model.layers.1.mlp"] = nvfp4;
  EXPECT_EQ(logits_of(m, kF32), expected);
  layers["model.layers.1.mlp.up_proj"] = nvfp4;  // of one mind
  EXPECT_EQ(logits_of(m, kF32), expected);
  layers["model.layers.1.mlp.up_proj"] = {{"quant_algo", "FP8"}};
  expect_says(outcome(m),
              {"quantized_layers", "one scheme for model.layers.1.mlp.up_proj",
               "FP8 for model.layers.1.mlp.up_proj and NVFP4 for model.layers.1.mlp"},
              "above");
  layers["model.layers.1.mlp.up_proj"] = nvfp4;
  layers["model.layers.0.mlp.up_proj"] = {{"quant_algo", "FP8"}};
  expect_says(outcome(m), {"one scheme for model.layers.0.mlp.up_proj", "gate_up_proj"}, "join");
}

/// The file has the joined tensor, the entries its shards.
TEST(MixedPrecision, JoinedTensorsNeedOneScheme) {
  const auto config = [](const Json& layers) {
    return QuantConfig::parse(
        {{"quantization_config",
          {{"quant_method", "modelopt"}, {"quant_algo", "MIXED_PRECISION"}, {kLayers, layers}}}},
        "config.json");
  };
  const Json fp8 = {{"quant_algo", "FP8"}}, nvfp4 = {{"quant_algo", "NVFP4"}};
  const QuantConfig q = config({{"a.q_proj", fp8},
                                {"a.k_proj", fp8},
                                {"a.v_proj", fp8},
                                {"b.gate_proj", nvfp4},
                                {"b.up_proj", fp8},
                                {"c.up_proj", fp8}});
  EXPECT_EQ(q.method_of("a.qkv_proj"), QuantMethod::kModelOptFp8);
  EXPECT_EQ(q.method_of("x.qkv_proj"), QuantMethod::kNone);
  EXPECT_EQ(q.method_of("b.gate_proj"), QuantMethod::kModelOptNvfp4);
  EXPECT_THROW((void)q.method_of("b.gate_up_proj"), InputError);
  EXPECT_THROW((void)q.method_of("c.gate_up_proj"), InputError);
  EXPECT_EQ(q.method_of("c.gate_proj"), QuantMethod::kNone);
}

TEST(MixedPrecision, InspectSaysWhy) {
  const TempDir dir;
  mixed_model(Where::kNested).write(dir);
  CommonOptions options;
  options.model = dir.path();
  options.backend = "reference";
  options.act = "bf16";
  Session session(options, Session::Purpose::kInspect);
  const auto info = [&](const std::string& op_name) {
    for (const LinearOp* op : session.model().ops()) {
      if (op->name().starts_with(op_name)) return op->info();
    }
    return LinearInfo();
  };
  EXPECT_EQ(info(kDown).decided,
            "quantized: weight is U8; hf_quant_config.json has the quantized_layers entry \"" +
                kDown + "\", W4A16_NVFP4");
  EXPECT_EQ(info("model.layers.1.self_attn.k_proj").stored,
            "fp8 e4m3, a scale per row, f32 scales");
  EXPECT_EQ(info("model.layers.1.self_attn.o_proj").stored, "fp8 e4m3, 5 x 5 blocks, f32 scales");
  EXPECT_EQ(info("model.layers.0.linear_attn.in_proj_b").decided,
            "plain: weight is BF16; hf_quant_config.json has the exclude_modules entry "
            "\"model.layers.0.linear_attn.in_proj_b\"; plain: weight is BF16; "
            "hf_quant_config.json has the exclude_modules entry "
            "\"model.layers.0.linear_attn.in_proj_a\"");
  EXPECT_EQ(
      info("lm_head").decided,
      "plain: weight is BF16; hf_quant_config.json has the exclude_modules entry \"lm_head\"");
}

TEST(MixedPrecision, ContradictionsNameBoth) {
  struct Case {
    const char* name;
    Where where;
    std::function<void(TestModel&, Json& flat, Json& nested)> bend;
    std::vector<std::string> says;
  };
  const auto entry = [](const char* algorithm) { return Json{{"quant_algo", algorithm}}; };
  const std::string weight = kUp + ".weight";
  const std::vector<Case> cases = {
      {"codes without an entry",
       Where::kFlat,
       [](TestModel&, Json& flat, Json&) { flat[kLayers].erase(kUp); },
       {kUp + ".weight_scale", "a plain weight", "no quantized_layers entry for it",
        "beside " + weight}},
      {"NVFP4 said to be FP8",
       Where::kFlat,
       [&](TestModel&, Json& flat, Json&) { flat[kLayers][kUp] = entry("FP8"); },
       {kUp + ".weight_scale_2", "quantized_layers entry \"" + kUp + "\", FP8",
        "beside " + weight}},
      {"FP8 said to be NVFP4",
       Where::kFlat,
       [&](TestModel&, Json& flat, Json&) {
         flat[kLayers]["model.layers.1.self_attn.q_proj"] = entry("NVFP4");
       },
       {"model.layers.1.self_attn.q_proj.weight_scale", "no scale beside", "F8_E4M3"}},
      {"channels said to be a tensor",
       Where::kFlat,
       [&](TestModel&, Json& flat, Json&) {
         flat[kLayers]["model.layers.1.self_attn.q_proj"] = entry("FP8_PER_CHANNEL_PER_TOKEN");
       },
       {"model.layers.1.self_attn.q_proj.weight_scale", "config.json and the tensor disagree"}},
      {"plain with an entry",
       Where::kFlat,
       [&](TestModel&, Json& flat, Json&) {
         flat[kLayers]["model.layers.0.linear_attn.in_proj_a"] = entry("FP8");
         flat["ignore"] = {"lm_head", "model.layers.0.linear_attn.in_proj_b"};
       },
       {"in_proj_a.weight", "codes with scales", "take the entry out"}},
      {"excluded and quantized",
       Where::kFlat,
       [](TestModel&, Json& flat, Json&) { flat["ignore"].push_back(kUp); },
       {weight, "a plain weight", "ignore entry \"" + kUp + "\"", "U8"}},
      {"unknown algorithm",
       Where::kFlat,
       [&](TestModel&, Json& flat, Json&) { flat[kLayers][kUp] = entry("MXFP8"); },
       {"quantized_layers." + kUp + ".quant_algo", "NVFP4_AWQ", "MXFP8"}},
      {"no algorithm",
       Where::kFlat,
       [](TestModel&, Json& flat, Json&) { flat[kLayers][kUp] = Json::object(); },
       {"quantized_layers." + kUp + ".quant_algo", "FP8"}},
      {"mixed in mixed",
       Where::kFlat,
       [&](TestModel&, Json& flat, Json&) { flat[kLayers][kUp] = entry("MIXED_PRECISION"); },
       {"quantized_layers." + kUp + ".quant_algo"}},
      {"another group",
       Where::kFlat,
       [](TestModel&, Json& flat, Json&) { flat[kLayers][kUp]["group_size"] = 32; },
       {"quantized_layers." + kUp + ".group_size", "16", "32"}},
      {"zero points",
       Where::kFlat,
       [](TestModel&, Json& flat, Json&) { flat[kLayers][kUp]["has_zero_point"] = true; },
       {"has_zero_point", "false"}},
      {"a pattern for a name",
       Where::kFlat,
       [&](TestModel&, Json& flat, Json&) { flat[kLayers]["*mlp*"] = entry("NVFP4"); },
       {"quantized_layers.*mlp*", "the name of a module"}},
      {"a class for a name",
       Where::kFlat,
       [&](TestModel&, Json& flat, Json&) { flat[kLayers]["Linear"] = entry("NVFP4"); },
       {"quantized_layers.Linear", "the name of a module"}},
      {"an empty name",
       Where::kFlat,
       [&](TestModel&, Json& flat, Json&) { flat[kLayers][""] = entry("NVFP4"); },
       {"quantized_layers.", "a name"}},
      {"two spellings of a name",
       Where::kFlat,
       [&](TestModel&, Json& flat, Json&) {
         flat[kLayers]["model.language_model.layers.0.mlp.up_proj"] = entry("FP8");
       },
       {"one scheme for " + kUp, "another spelling"}},
      {"an array of layers",
       Where::kFlat,
       [](TestModel&, Json& flat, Json&) { flat[kLayers] = Json::array({kUp}); },
       {"quantized_layers", "an object"}},
      {"no layers anywhere",
       Where::kFlat,
       [](TestModel&, Json& flat, Json&) { flat.erase(kLayers); },
       {"quantized_layers", "because of MIXED_PRECISION", "none in hf_quant_config.json"}},
      {"no layers in either",
       Where::kBoth,
       [](TestModel&, Json& flat, Json& nested) {
         flat[kLayers] = Json::object();
         nested.erase(kLayers);
       },
       {"quantized_layers", "because of MIXED_PRECISION"}},
      {"layers of one algorithm",
       Where::kFlat,
       [](TestModel&, Json& flat, Json&) { flat["quant_algo"] = "NVFP4"; },
       {"quantized_layers", "MIXED_PRECISION in quantization_config.quant_algo"}},
      {"nested without a group",
       Where::kNested,
       [](TestModel&, Json&, Json& nested) { nested[kLayers][kUp].erase("group_size"); },
       {"hf_quant_config.json", kUp, "this form has no default"}},
      {"files with two schemes",
       Where::kBoth,
       [&](TestModel&, Json&, Json& nested) { nested[kLayers][kUp] = entry("FP8"); },
       {"hf_quant_config.json", "quantized_layers." + kUp, "NVFP4", "FP8"}},
      {"files with two maps",
       Where::kBoth,
       [](TestModel&, Json&, Json& nested) { nested[kLayers].erase(kUp); },
       {"hf_quant_config.json", "quantized_layers." + kUp, "nothing"}},
      {"one file mixed",
       Where::kBoth,
       [](TestModel&, Json&, Json& nested) {
         nested.erase(kLayers);
         nested["quant_algo"] = "NVFP4";
         nested["group_size"] = 16;
       },
       {"hf_quant_config.json", "quant_algo", "MIXED_PRECISION"}},
      {"a group of other bits",
       Where::kFlat,
       [](TestModel&, Json& flat, Json&) {
         flat["config_groups"]["group_0"] = {{"targets", {kUp}}, {"weights", {{"num_bits", 8}}}};
       },
       {"config_groups.group_0.weights.num_bits", "4, because quantized_layers has NVFP4"}},
      {"a group of integers",
       Where::kFlat,
       [](TestModel&, Json& flat, Json&) {
         flat["config_groups"]["group_0"] = {{"targets", {kUp}}, {"weights", {{"type", "int"}}}};
       },
       {"config_groups.group_0.weights.type", "float, because quantized_layers has NVFP4"}},
      {"a group of another size",
       Where::kFlat,
       [](TestModel&, Json& flat, Json&) {
         flat["config_groups"]["group_0"] = {{"targets", {kUp}}, {"weights", {{"group_size", 32}}}};
       },
       {"config_groups.group_0.weights.group_size", "16", "32"}},
      {"a group of other bits than the nested file's",
       Where::kLayersNested,
       [](TestModel&, Json& flat, Json&) {
         flat["config_groups"]["group_0"] = {{"targets", {kUp}}, {"weights", {{"num_bits", 8}}}};
       },
       {"config_groups.group_0.weights.num_bits", "4, because quantized_layers has NVFP4"}},
      {"a group of other names",
       Where::kFlat,
       [](TestModel&, Json& flat, Json&) {
         flat["config_groups"]["group_0"] = {{"targets", {"lm_head"}},
                                             {"weights", {{"num_bits", 8}}}};
       },
       {"config_groups.group_0.targets[0]", "a name that quantized_layers has"}},
  };
  ASSERT_EQ(outcome(mixed_model(Where::kBoth)), "loaded");
  for (const Case& c : cases) {
    TestModel m = mixed_model(c.where);
    Json none, nested;
    if (c.where != Where::kFlat) nested = read_nested(m);
    const bool flat = c.where != Where::kNested;
    c.bend(m, flat ? m.config["quantization_config"] : none,
           nested.is_null() ? none : nested["quantization"]);
    if (!nested.is_null()) write_nested(m, nested);
    expect_says(outcome(m), c.says, c.name);
  }
}

/// Bug log L02.
TEST(MixedPrecision, EntriesThatMatchNothingAreReported) {
  TestModel m = mixed_model(Where::kFlat);
  m.config["quantization_config"][kLayers]["model.layers.7.mlp.up_proj"] = {{"quant_algo", "FP8"}};
  const TempDir dir;
  m.write(dir);
  const ModelDir files(dir.path());
  const std::vector<std::string> warnings =
      QuantConfig::load(files).unmatched_entries(Checkpoint::open(files));
  ASSERT_EQ(warnings.size(), 1u);
  expect_says(warnings[0], {"quantization_config.quantized_layers: \"model.layers.7.mlp.up_proj\""},
              "ghost");
}

}  // namespace
}  // namespace quern::smoke
