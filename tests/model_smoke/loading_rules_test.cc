// loading-rules.md A8-A10, A12, B6, B14, B15 for FP8 and NVFP4 (int4:
// int4_contradictions_test.cc; B1-B6: exclusion_test.cc).
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"
#include "model_smoke/session.h"
#include "model_smoke/weights.h"
#include "tests/model_smoke/float_model.h"
#include "tests/model_smoke/int4_model.h"
#include "tests/model_smoke/load_outcome.h"
#include "tests/support/source_dir.h"

namespace quern::smoke {
namespace {

using test::expect_says;
using test::FloatFile;
using test::Json;
using test::logits_of;
using test::outcome;
using test::TempDir;
using test::TestModel;
using test::TestTensor;
using test::tiny_float_model;
using test::TinyFloat;

constexpr FloatFile kForms[] = {FloatFile::kFp8Block,      FloatFile::kFp8,
                                FloatFile::kCtFp8,         FloatFile::kModelOptFp8,
                                FloatFile::kModelOptNvfp4, FloatFile::kNestedNvfp4,
                                FloatFile::kBothNvfp4,     FloatFile::kCtNvfp4};

TestModel model_of(FloatFile file) {
  const bool blocks = file == FloatFile::kFp8Block;
  return tiny_float_model({.file = file, .block_n = blocks ? 8 : -1, .block_k = blocks ? 8 : -1});
}

std::string up(const char* suffix) {
  return std::string(test::kUp) + suffix;
}

void drop(TestModel& m, const std::string& tensor) {
  ASSERT_EQ(std::erase_if(m.tensors, [&](const TestTensor& t) { return t.name == tensor; }), 1u)
      << tensor;
}

const char* codes_of(FloatFile file) {
  return file == FloatFile::kCtNvfp4 ? ".weight_packed" : ".weight";
}

std::vector<const char*> scales_of(FloatFile file) {
  if (file == FloatFile::kFp8Block) return {".weight_scale_inv"};
  if (file == FloatFile::kCtNvfp4) return {".weight_scale", ".weight_global_scale"};
  if (test::is_nvfp4(file)) return {".weight_scale", ".weight_scale_2"};
  return {".weight_scale"};
}

TEST(LoadingRules, A8_TwoReadingsOfOneModule) {
  for (const FloatFile file : kForms) {
    TestModel both = model_of(file);
    both.tensors.push_back({up(".qweight"), "I32", {2, 24}, std::string(192, '\1')});
    expect_says(outcome(both), {up(".qweight"), "another format beside " + up(codes_of(file))},
                name_of(file));

    TestModel empty = model_of(file);
    TestTensor& codes = empty.tensor(up(codes_of(file)));
    codes.shape = {0, codes.shape[1]};
    codes.bytes.clear();
    expect_says(outcome(empty), {up(codes_of(file)), "not empty", "[0, "}, name_of(file));
  }
  TestModel packed = model_of(FloatFile::kCtNvfp4);
  packed.tensors.push_back({up(".weight"), "BF16", {24, 16}, std::string(768, '\1')});
  expect_says(outcome(packed), {up(".weight_packed"), "beside", up(".weight"), "BF16 [24, 16]"},
              "weight beside weight_packed");
  TestModel null_sized = model_of(FloatFile::kCtNvfp4);
  null_sized.tensors.push_back({up(".weight"), "BF16", {0}, {}});
  expect_says(outcome(null_sized), {up(".weight_packed"), "beside", "BF16 [0]"},
              "null-sized weight");
  TestModel plain = model_of(FloatFile::kModelOptNvfp4);
  TestTensor& weight = plain.tensor(up(".weight"));
  weight = {up(".weight"), "BF16", {24, 16}, std::string(768, '\1')};
  expect_says(outcome(plain), {up(".weight_scale"), "no scale beside", "BF16 [24, 16]"},
              "scales beside a plain weight");
}

TEST(LoadingRules, A9_AMissingTensorIsNamed) {
  for (const FloatFile file : kForms) {
    for (const char* suffix : scales_of(file)) {
      TestModel m = model_of(file);
      drop(m, up(suffix));
      expect_says(outcome(m), {up(suffix), "a scale for", "none"}, name_of(file));
    }
    TestModel m = model_of(file);
    drop(m, up(codes_of(file)));
    expect_says(outcome(m), {up(codes_of(file)), "none"}, name_of(file));
  }
}

/// The list of modules that are not quantized, wherever the form has it.
void add_excluded(TestModel& m, const std::string& entry) {
  if (m.config.contains("quantization_config")) {
    Json& quant = m.config["quantization_config"];
    quant[quant.contains("ignore") ? "ignore" : "modules_to_not_convert"].push_back(entry);
  }
  if (m.raw.contains("hf_quant_config.json")) {
    Json nested = read_nested(m);
    nested["quantization"]["exclude_modules"].push_back(entry);
    write_nested(m, nested);
  }
}

TEST(LoadingRules, A10_ListsAreHonouredAndReported) {
  for (const FloatFile file : kForms) {
    TestModel listed = model_of(file);
    add_excluded(listed, test::kUp);
    expect_says(outcome(listed), {up(codes_of(file)), "a plain weight", "entry", test::kUp},
                name_of(file));

    std::erase_if(listed.tensors,
                  [](const TestTensor& t) { return t.name.starts_with(std::string(test::kUp)); });
    listed.tensors.push_back({up(".weight"), "BF16", {24, 16}, std::string(768, '\1')});
    add_excluded(listed, "model.layers.7.mlp.up_proj");
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(outcome(listed), "loaded") << name_of(file);
    const std::string said = ::testing::internal::GetCapturedStderr();
    const std::string key = file == FloatFile::kNestedNvfp4
                                ? "hf_quant_config.json: quantization.exclude_modules"
                                : "config.json: quantization_config.";
    expect_says(said, {key, "\"model.layers.7.mlp.up_proj\" matches no module"}, name_of(file));
    EXPECT_EQ(said.find("\"lm_head\""), std::string::npos) << name_of(file) << said;
  }
  // Unlisted and plain: an error where the writer lists every plain module.
  for (const FloatFile file : kForms) {
    TestModel m = model_of(file);
    std::erase_if(m.tensors,
                  [](const TestTensor& t) { return t.name.starts_with(std::string(test::kUp)); });
    m.tensors.push_back({up(".weight"), "BF16", {24, 16}, std::string(768, '\1')});
    const bool lists_all = file == FloatFile::kCtFp8 || file == FloatFile::kCtNvfp4;
    expect_says(outcome(m), {lists_all ? "add the module to ignore" : "loaded"}, name_of(file));
  }
}

/// Bug log L03: codes and scales that are all the same are told, as plain weights are.
void expect_constant_is_told(TestModel m, const std::string& tensor) {
  TestTensor& t = m.tensor(tensor);
  const size_t size = t.bytes.size() / static_cast<size_t>(t.shape.at(0) * t.shape.at(1));
  const std::string first = t.bytes.substr(0, size);
  for (const std::string& value : {first, std::string(size, '\0')}) {
    for (size_t i = 0; i < t.bytes.size(); i += size) t.bytes.replace(i, size, value);
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(outcome(m), "loaded") << tensor;
    expect_says(::testing::internal::GetCapturedStderr(), {tensor + ": all ", " values are "},
                tensor);
  }
}

TEST(LoadingRules, L03_ConstantCodesAndScalesAreTold) {
  for (const FloatFile file : {FloatFile::kFp8Block, FloatFile::kModelOptNvfp4}) {
    expect_constant_is_told(model_of(file), up(codes_of(file)));
    expect_constant_is_told(model_of(file), up(scales_of(file).front()));
  }
  const TestModel gptq = test::tiny_int4_model();
  expect_constant_is_told(gptq, up(".qweight"));
  expect_constant_is_told(gptq, up(".scales"));
}

/// What decides is asked about tensors that are not there: an error, and the same one again.
TEST(LoadingRules, A12_NothingIsDecidedBeforeItIsThere) {
  for (const FloatFile file : kForms) {
    const TempDir dir;
    model_of(file).write(dir);
    const ModelDir model(dir.path());
    const QuantConfig quant = QuantConfig::load(model);
    Checkpoint checkpoint = Checkpoint::open(model);
    WeightLoader loader(checkpoint, quant);
    const std::string absent = "model.layers.2.mlp.up_proj";
    for (int again = 0; again < 2; ++again) {
      EXPECT_THROW((void)quant.format_of(absent, checkpoint), InputError) << name_of(file);
      EXPECT_THROW((void)quant.decide(absent, checkpoint), InputError) << name_of(file);
      EXPECT_THROW((void)loader.stacked({{test::kUp, 24}, {absent, 24}}, 16, false), InputError);
    }
    // The module that was there has not been taken by the attempt.
    EXPECT_NO_THROW((void)loader.single({test::kUp, 24}, 16, false)) << name_of(file);
  }
}

/// Both spellings of a join are names that the checkpoint knows (bug log L02).
TEST(LoadingRules, B6_JoinedNamesMatchTheirShards) {
  TestModel m = model_of(FloatFile::kModelOptNvfp4);
  for (const char* entry : {"model.layers.1.self_attn.qkv_proj", "model.layers.7.mlp.gate_up_proj"})
    add_excluded(m, entry);
  const TempDir dir;
  m.write(dir);
  const ModelDir files(dir.path());
  const std::vector<std::string> warnings =
      QuantConfig::load(files).unmatched_entries(Checkpoint::open(files));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("model.layers.7.mlp.gate_up_proj"), std::string::npos);
  expect_says(outcome(m),
              {"model.layers.1.self_attn.q_proj.weight", "\"model.layers.1.self_attn.qkv_proj\""},
              "qkv");
}

/// Some shards plain, some quantized: each runs in its own format, with the numbers of a plain
/// file. (The parts of fused_qkv_a_proj_with_mqa are DeepSeek's, which this tool does not run yet:
/// B6_FusedModules has what its lists say.)
TEST(LoadingRules, B6_ShardsOfTwoFormatsStayApart) {
  const std::vector<std::string> plain = {
      "model.layers.1.self_attn.k_proj", "model.layers.0.mlp.up_proj",
      "model.layers.0.linear_attn.in_proj_z", "model.layers.0.linear_attn.in_proj_a"};
  TestModel mixed = tiny_float_model({.file = FloatFile::kModelOptNvfp4, .uniform = true});
  TestModel numbers = mixed;
  const TempDir source;
  numbers.write(source);
  numbers = test::reencoded_float(source.path(), FloatFile::kPlain);
  for (const std::string& module : plain) {
    add_excluded(mixed, module);
    std::erase_if(mixed.tensors,
                  [&](const TestTensor& t) { return t.name.starts_with(module + "."); });
    mixed.tensors.push_back(numbers.tensor(module + ".weight"));
  }
  const TempDir a, b;
  mixed.write(a);
  numbers.write(b);
  EXPECT_EQ(logits_of(a.path(), {"reference", "f32"}), logits_of(b.path(), {"reference", "f32"}));
  EXPECT_NO_THROW((void)logits_of(a.path(), {"reference", "bf16"}));
}

TEST(LoadingRules, B14_UnknownAlgorithmsListTheSupportedOnes) {
  for (const char* algorithm : {"INT4_AWQ", "W4A8_AWQ", "MXFP8", "nvfp4", ""}) {
    for (const FloatFile file : {FloatFile::kModelOptNvfp4, FloatFile::kNestedNvfp4}) {
      TestModel m = model_of(file);
      if (file == FloatFile::kNestedNvfp4) {
        Json json = read_nested(m);
        json["quantization"]["quant_algo"] = algorithm;
        write_nested(m, json);
      } else {
        m.config["quantization_config"]["quant_algo"] = algorithm;
      }
      expect_says(outcome(m),
                  {"quant_algo", "FP8", "NVFP4", "NVFP4_AWQ", "MIXED_PRECISION", "W8A8"},
                  algorithm);
    }
  }
  TestModel awq = model_of(FloatFile::kModelOptNvfp4);
  awq.config["quantization_config"]["quant_algo"] = "NVFP4_AWQ";
  EXPECT_EQ(outcome(awq), "loaded");
}

TEST(LoadingRules, B15_GroupSize) {
  TestModel flat_form = model_of(FloatFile::kModelOptNvfp4);
  flat_form.config["quantization_config"].erase("config_groups");
  EXPECT_EQ(logits_of(flat_form, {"reference", "f32"}),  // 16
            logits_of(tiny_float_model({.file = FloatFile::kModelOptNvfp4, .numbers = true}),
                      {"reference", "f32"}));
  flat_form.config["quantization_config"]["group_size"] = 32;
  expect_says(outcome(flat_form), {"config.json", "group_size", "16", "32"}, "flat");
  TestModel groups = model_of(FloatFile::kModelOptNvfp4);
  groups.config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = 8;
  expect_says(outcome(groups), {"config_groups", "group_size", "16"}, "config_groups");
  TestModel nested_form = model_of(FloatFile::kNestedNvfp4);
  Json json = read_nested(nested_form);
  json["quantization"]["group_size"] = 32;
  write_nested(nested_form, json);
  expect_says(outcome(nested_form), {"hf_quant_config.json", "group_size", "16", "32"}, "nested");
  json["quantization"].erase("group_size");
  write_nested(nested_form, json);
  expect_says(outcome(nested_form), {"hf_quant_config.json", "group_size", "no default"}, "nested");
}

/// Both kinds of ModelOpt file in the two dense classes; what the two MoE classes decide for each
/// of their modules (this tool does not run them yet).
TEST(LoadingRules, B_BothKindsOfFileInBothDenseClasses) {
  for (const bool uniform : {false, true}) {
    for (const bool nested_form : {false, true}) {
      TestModel m = tiny_float_model(
          {.file = nested_form ? FloatFile::kNestedNvfp4 : FloatFile::kModelOptNvfp4,
           .uniform = uniform});
      if (!uniform) {
        const TestModel plain = test::tiny_model();
        std::erase_if(m.tensors, [](const TestTensor& t) {
          return t.name.find("_attn.") != std::string::npos;
        });
        for (const TestTensor& t : plain.tensors) {
          if (t.name.find("_attn.") != std::string::npos) m.tensors.push_back(t);
        }
        for (const char* entry : {"*self_attn*", "*linear_attn*"}) add_excluded(m, entry);
      }
      EXPECT_EQ(outcome(m), "loaded");
      const Json text = m.config;
      m.config = {{"architectures", {"Qwen3_5ForConditionalGeneration"}},
                  {"model_type", "qwen3_5"},
                  {"text_config", text},
                  {"tie_word_embeddings", false}};
      m.config["text_config"].erase("architectures");
      m.config["text_config"].erase("quantization_config");
      if (!nested_form) m.config["quantization_config"] = text.at("quantization_config");
      for (TestTensor& t : m.tensors) {
        if (t.name.starts_with("model.")) t.name.insert(6, "language_model.");
      }
      EXPECT_EQ(outcome(m), "loaded");
    }
  }
}

TEST(LoadingRules, B_MoeModulesAreDecidedByTheirFiles) {
  const std::string root = quern::test::source_dir() + "/../shared/goldens/public/";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << root << " is not on this machine";
  for (const bool uniform : {false, true}) {
    const ModelDir dir(root + (uniform ? "qwen35_moe.nvfp4_all" : "qwen35_moe.nvfp4_mlp"));
    const QuantConfig quant = QuantConfig::load(dir);
    const Checkpoint checkpoint = Checkpoint::open(dir);
    EXPECT_TRUE(quant.unmatched_entries(checkpoint).empty());
    int attention = 0, experts = 0;
    for (const std::string& name : checkpoint.names()) {
      const bool projection = name.find("_proj") != std::string::npos && name.ends_with(".weight");
      if (!projection || name.starts_with("model.visual.")) continue;
      const std::string module = name.substr(0, name.rfind('.'));
      const ModuleFormat format = quant.format_of(module, checkpoint);
      const bool is_attention = name.find("_attn.") != std::string::npos;
      (is_attention ? attention : experts) += 1;
      EXPECT_EQ(format, is_attention && !uniform ? ModuleFormat::kPlain : ModuleFormat::kFp4)
          << name;
    }
    EXPECT_GT(attention, 10);
    EXPECT_GT(experts, 100);
    for (const char* plain : {"lm_head", "model.language_model.layers.0.mlp.gate",
                              "model.language_model.layers.0.mlp.shared_expert_gate"}) {
      EXPECT_EQ(quant.format_of(plain, checkpoint), ModuleFormat::kPlain) << plain;
    }
  }
}

}  // namespace
}  // namespace quern::smoke
