// loading-rules.md A8-A10, A12 and D for plain, int8 and int4 files; FP8 and NVFP4:
// loading_rules_test.cc. What contradicts itself beyond these rules: int4_contradictions_test.cc.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"
#include "model_smoke/session.h"
#include "model_smoke/weights.h"
#include "tests/model_smoke/load_outcome.h"
#include "tests/support/source_dir.h"

namespace quern::smoke {
namespace {

using test::expect_says;
using test::Int4File;
using test::Json;
using test::logits_of;
using test::Mode;
using test::outcome;
using test::TempDir;
using test::TestModel;
using test::TestTensor;
using test::tiny_int4_model;

const Mode kF32{"reference", "f32"};
const std::string kUp = test::kUp;

/// A way to store a model, and what the rules say of it.
struct Form {
  std::string name;
  TestModel model;
  std::string codes;                ///< behind the name of a module
  std::vector<std::string> others;  ///< without one of them the module cannot be read
  bool lists_plain;                 ///< the writer names every module that is not quantized
};

std::vector<Form> forms() {
  const auto int4 = [](Int4File file, bool symmetric, bool act_order) {
    return tiny_int4_model({file, 8, symmetric, act_order});
  };
  const std::vector<std::string> gptq = {".scales"}, zeros = {".scales", ".qzeros"};
  return {
      {"plain", test::tiny_model(), ".weight", {}, false},
      {"w8a8_int8", test::tiny_int8_model(), ".weight", {".weight_scale"}, true},
      {"ct_int8", test::tiny_compressed_int8_model(), ".weight", {".weight_scale"}, true},
      {"gptq", int4(Int4File::kGptq, true, false), ".qweight", gptq, false},
      {"gptq asymmetric", int4(Int4File::kGptq, false, false), ".qweight", zeros, false},
      {"gptq_v2 asymmetric", int4(Int4File::kGptqV2, false, false), ".qweight", zeros, false},
      {"gptq desc_act",
       int4(Int4File::kGptq, false, true),
       ".qweight",
       {".scales", ".qzeros", ".g_idx"},
       false},
      {"gptq_v2 desc_act",
       int4(Int4File::kGptqV2, true, true),
       ".qweight",
       {".scales", ".g_idx"},
       false},
      {"awq", int4(Int4File::kAwq, false, false), ".qweight", zeros, false},
      {"awq symmetric", int4(Int4File::kAwq, true, false), ".qweight", gptq, false},
      {"ct_int4",
       int4(Int4File::kCompressedTensors, false, true),
       ".weight_packed",
       {".weight_scale", ".weight_zero_point", ".weight_g_idx"},
       true},
      {"ct_int4 symmetric",
       int4(Int4File::kCompressedTensors, true, false),
       ".weight_packed",
       {".weight_scale"},
       true},
  };
}

void drop(TestModel& m, const std::string& tensor) {
  ASSERT_EQ(std::erase_if(m.tensors, [&](const TestTensor& t) { return t.name == tensor; }), 1u)
      << tensor;
}
void make_plain(TestModel& m, const std::string& module) {
  std::erase_if(m.tensors, [&](const TestTensor& t) { return t.name.starts_with(module + "."); });
  m.tensors.push_back(test::tiny_model().tensor(module + ".weight"));
}
/// Puts the module into whatever list the form has.
void exclude(TestModel& m, const std::string& module) {
  Json& quant = m.config["quantization_config"];
  if (quant["quant_method"] == "gptq") {
    quant["dynamic"]["-:.*" + module] = Json::object();
  } else {
    quant[quant.contains("ignore") ? "ignore" : "modules_to_not_convert"].push_back(module);
  }
}

TEST(LoadingRules, A8_TwoReadingsOfOneIntegerModule) {
  for (const Form& f : forms()) {
    ASSERT_EQ(outcome(f.model), "loaded") << f.name;
    const bool in_weight = f.codes == ".weight";
    TestModel both = f.model;
    const TestTensor second =
        in_weight ? TestTensor{kUp + ".qweight", "I32", {2, 24}, std::string(192, '\1')}
                  : TestTensor{kUp + ".weight", "BF16", {24, 16}, std::string(768, '\1')};
    both.tensors.push_back(second);
    // The tensors of both readings, whichever it stumbles over.
    expect_says(outcome(both), {second.name, " beside ", kUp + "."}, f.name);
    TestModel empty = f.model;
    if (in_weight) {
      empty.tensor(kUp + ".weight") = {
          kUp + ".weight", both.tensor(kUp + ".weight").dtype, {0, 16}, {}};
      expect_says(outcome(empty), {kUp + ".weight", "not empty", "[0, 16]"}, f.name);
    } else {
      empty.tensors.push_back({kUp + ".weight", "BF16", {0}, {}});
      expect_says(outcome(empty), {kUp + ".", "beside " + kUp + ".weight BF16 [0]"}, f.name);
    }
  }
}

TEST(LoadingRules, A9_AMissingIntegerTensorIsNamed) {
  for (const Form& f : forms()) {
    for (const std::string& suffix : f.others) {
      TestModel m = f.model;
      drop(m, kUp + suffix);
      expect_says(outcome(m), {kUp + suffix, "none"}, f.name);
    }
    TestModel m = f.model;
    drop(m, kUp + f.codes);
    expect_says(outcome(m), {kUp + f.codes, "none"}, f.name);
  }
}

TEST(LoadingRules, A10_ListsOfIntegerFilesAreHonouredAndReported) {
  for (const Form& f : forms()) {
    if (f.name == "plain") continue;
    TestModel listed = f.model;
    exclude(listed, kUp);
    expect_says(outcome(listed), {kUp + f.codes, "a plain weight", kUp}, f.name);
    make_plain(listed, kUp);
    exclude(listed, "model.layers.7.mlp.up_proj");
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(outcome(listed), "loaded") << f.name;
    const std::string said = ::testing::internal::GetCapturedStderr();
    expect_says(said,
                {"config.json: quantization_config.", "model.layers.7.mlp.up_proj\" matches no"},
                f.name);
    EXPECT_EQ(said.find("matches"), said.rfind("matches")) << f.name << said;
    TestModel unlisted = f.model;
    make_plain(unlisted, kUp);
    expect_says(outcome(unlisted), {f.lists_plain ? "add the module to ignore" : "loaded"}, f.name);
  }
}

/// Rules of `dynamic` that change a module change its numbers, and each that matches nothing is
/// told.
TEST(LoadingRules, A10_DynamicRules) {
  const test::Int4Style fine{Int4File::kGptq, 4, false, true},
      coarse{Int4File::kGptq, 8, true, false};
  test::Int4Style fine_numbers = fine, coarse_numbers = coarse;
  fine_numbers.numbers = coarse_numbers.numbers = true;
  const auto with_up_of = [](TestModel m, const TestModel& other) {
    std::erase_if(m.tensors, [](const TestTensor& t) { return t.name.starts_with(kUp + "."); });
    for (const TestTensor& t : other.tensors) {
      if (t.name.starts_with(kUp + ".")) m.tensors.push_back(t);
    }
    return m;
  };
  const std::vector<float> expected =
      logits_of(with_up_of(tiny_int4_model(coarse_numbers), tiny_int4_model(fine_numbers)), kF32);
  const Json change = {{"group_size", 4}, {"sym", false}, {"desc_act", true}, {"bits", 4}};
  for (const char* prefix : {"+:", ""}) {  // both spellings of a change
    TestModel m = with_up_of(tiny_int4_model(coarse), tiny_int4_model(fine));
    EXPECT_NE(outcome(m), "loaded");  // nothing says so yet
    Json& rules = m.config["quantization_config"]["dynamic"];
    rules[prefix + std::string("model\\.layers\\.0\\.mlp\\.up_proj")] = change;
    EXPECT_EQ(logits_of(m, kF32), expected) << prefix;
    rules["+:.*layers\\.0\\.mlp\\.up_proj"] = {{"bits", 8}};
    expect_says(outcome(m), {"dynamic", "say the same of " + kUp}, "two rules");
  }
  for (const char* rule : {"-:.*ghost.*", "+:.*ghost.*", ".*ghost.*", "ghost", "-:up_proj"}) {
    TestModel m = tiny_int4_model(coarse);
    m.config["quantization_config"]["dynamic"][rule] = Json::object();
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(outcome(m), "loaded") << rule;
    // "up_proj" stands at the start of no name.
    expect_says(::testing::internal::GetCapturedStderr(),
                {"quantization_config.dynamic: \"" + std::string(rule) + "\" matches no module"},
                rule);
  }
}

/// What decides is asked about tensors that are not there: an error, each time, and none that
/// sticks: the same config decides by the next files it is asked about.
TEST(LoadingRules, A12_NoAnswerIsFrozen) {
  for (const Form& f : forms()) {
    TestModel half = f.model, plain = f.model;
    std::erase_if(half.tensors, [](const TestTensor& t) { return t.name.starts_with(kUp + "."); });
    make_plain(plain, kUp);
    const TempDir half_dir, plain_dir, dir;
    half.write(half_dir);
    plain.write(plain_dir);
    f.model.write(dir);
    const ModelDir files(dir.path());
    const QuantConfig quant = QuantConfig::load(files);
    Checkpoint unloaded = Checkpoint::open(ModelDir(half_dir.path()));
    Checkpoint loaded = Checkpoint::open(files);
    WeightLoader early(unloaded, quant), loader(loaded, quant);
    for (int again = 0; again < 2; ++again) {
      EXPECT_THROW((void)quant.format_of(kUp, unloaded), InputError) << f.name;
      EXPECT_THROW((void)quant.decide(kUp, unloaded), InputError) << f.name;
      EXPECT_THROW((void)early.stacked({{kUp, 24}}, 16, false), InputError) << f.name;
    }
    const ModuleFormat format = quant.format_of(kUp, loaded);
    EXPECT_EQ(format == ModuleFormat::kPlain, f.name == "plain") << f.name;
    EXPECT_NO_THROW((void)loader.single({kUp, 24}, 16, false)) << f.name;
    EXPECT_EQ(quant.format_of(kUp, loaded), format) << f.name;  // taken: decided as before
    if (!f.lists_plain) {
      EXPECT_EQ(quant.format_of(kUp, Checkpoint::open(ModelDir(plain_dir.path()))),
                ModuleFormat::kPlain)
          << f.name;
    }
  }
}

// ---- D: the same numbers in a plain file, spelled out by the formats' descriptions
// (int4_model.cc)

/// BF16, F16 and F32 hold the same numbers here: those of bf16 between 2^-14 and 2^16.
TEST(LoadingRules, D_PlainTypes) {
  const std::vector<float> expected = logits_of(test::tiny_model(), kF32);
  for (const char* dtype : {"F16", "F32"}) {
    TestModel m = test::tiny_model();
    for (TestTensor& t : m.tensors) {
      if (t.dtype != "BF16") continue;
      std::string bytes;
      for (size_t i = 0; i < t.bytes.size(); i += 2) {
        uint16_t bits;
        std::memcpy(&bits, t.bytes.data() + i, 2);
        const float x = bfloat16{bits}.to_float();
        if (dtype == std::string("F32")) {
          bytes.append(reinterpret_cast<const char*>(&x), 4);
          continue;
        }
        const int exponent = bits >> 7 & 255;
        ASSERT_TRUE((bits & 0x7fff) == 0 || (exponent > 127 - 15 && exponent < 127 + 16)) << x;
        const auto half = static_cast<uint16_t>(
            (bits & 0x8000) |
            ((bits & 0x7fff) == 0 ? 0 : (exponent - 127 + 15) << 10 | (bits & 127) << 3));
        bytes.append(reinterpret_cast<const char*>(&half), 2);
      }
      t.dtype = dtype;
      t.bytes = bytes;
    }
    EXPECT_EQ(logits_of(m, kF32), expected) << dtype;
  }
}

TEST(LoadingRules, D_Int8) {
  TestModel numbers = test::tiny_int8_model();
  for (TestTensor& t : numbers.tensors) {
    if (t.dtype != "I8") continue;
    const std::string scales = numbers.tensor(t.name + "_scale").bytes;
    std::string bytes;
    for (size_t i = 0; i < t.bytes.size(); ++i) {
      float scale;
      std::memcpy(&scale, scales.data() + 4 * (i / static_cast<size_t>(t.shape[1])), 4);
      const float x = static_cast<float>(static_cast<int8_t>(t.bytes[i])) * scale;
      bytes.append(reinterpret_cast<const char*>(&x), 4);
    }
    t = {t.name, "F32", t.shape, bytes};
  }
  std::erase_if(numbers.tensors,
                [](const TestTensor& t) { return t.name.ends_with(".weight_scale"); });
  numbers.config.erase("quantization_config");
  const std::vector<float> expected = logits_of(numbers, kF32);
  TestModel vectors = test::tiny_compressed_int8_model();
  for (TestTensor& t : vectors.tensors) {
    if (t.name.ends_with(".weight_scale")) t.shape = {t.shape[0]};
  }
  EXPECT_EQ(logits_of(test::tiny_int8_model(), kF32), expected);
  EXPECT_EQ(logits_of(test::tiny_compressed_int8_model(), kF32), expected);
  EXPECT_EQ(logits_of(vectors, kF32), expected);
}

/// GPTQ v1 and v2, AWQ and compressed-tensors; symmetric and not; with g_idx in another order.
TEST(LoadingRules, D_Int4) {
  for (const Int4File file :
       {Int4File::kGptq, Int4File::kGptqV2, Int4File::kAwq, Int4File::kCompressedTensors}) {
    for (const int64_t group : {4, 8, 16, 5, -1}) {
      for (const bool symmetric : {true, false}) {
        for (const bool act_order : {false, true}) {
          if (act_order && (file == Int4File::kAwq || group < 0)) continue;
          test::Int4Style style{file, group, symmetric, act_order};
          const std::vector<float> actual = logits_of(tiny_int4_model(style), kF32);
          style.numbers = true;
          EXPECT_EQ(actual, logits_of(tiny_int4_model(style), kF32))
              << name_of(file) << " group " << group << (symmetric ? " symmetric" : "")
              << (act_order ? " desc_act" : "");
        }
      }
    }
  }
}

/// Groups of the sizes that are published: those of 128 cut up, each part with the scale and zero
/// of the whole, are the same weights.
TEST(LoadingRules, D_Int4GroupsOf16To128) {
  const std::string path =
      quern::test::source_dir() + "/model_smoke/checkpoints/qwen35_docs.gptq_g128";
  const std::vector<float> expected = logits_of(path, kF32);
  for (const Int4File file :
       {Int4File::kGptq, Int4File::kGptqV2, Int4File::kAwq, Int4File::kCompressedTensors}) {
    for (const int64_t group : {16, 32, 64, 128}) {
      EXPECT_EQ(logits_of(test::reencoded(path, file, group), kF32), expected)
          << name_of(file) << " group " << group;
    }
  }
}

/// Zeros at both ends: v1 stores the zero less one, v2, AWQ and compressed-tensors the zero.
TEST(LoadingRules, D_GptqZeros) {
  const struct {
    Int4File file;
    uint32_t stored;
    int zero;
  } rows[] = {{Int4File::kGptq, 0x00000000u, 1},
              {Int4File::kGptq, 0xffffffffu, 16},
              {Int4File::kGptqV2, 0x00000000u, 0},
              {Int4File::kGptqV2, 0xffffffffu, 15},
              {Int4File::kAwq, 0x00000000u, 0},
              {Int4File::kAwq, 0xffffffffu, 15},
              {Int4File::kCompressedTensors, 0x00000000u, 0},
              {Int4File::kCompressedTensors, 0xffffffffu, 15}};
  for (const auto& r : rows) {
    test::Int4Style style{r.file, 8, false, false};
    TestModel m = tiny_int4_model(style);
    for (TestTensor& t : m.tensors) {
      if (!t.name.ends_with(".qzeros") && !t.name.ends_with(".weight_zero_point")) continue;
      for (size_t i = 0; i < t.bytes.size(); i += 4) std::memcpy(t.bytes.data() + i, &r.stored, 4);
    }
    style.numbers = true;
    style.zero = r.zero;
    EXPECT_EQ(logits_of(m, kF32), logits_of(tiny_int4_model(style), kF32))
        << name_of(r.file) << " " << r.stored;
  }
}

/// Every tensor is used once, or ignored for a reason that is told, or an error that names it.
TEST(LoadingRules, D_EveryTensorIsUsedOrIgnored) {
  for (const Form& f : forms()) {
    TestModel m = f.model;
    for (const char* name : {"mtp.layers.0.mlp.up_proj.weight", "mtp.norm.weight",
                             "model.visual.blocks.0.attn.qkv.weight"}) {
      m.tensors.push_back({name, "BF16", {1, 2}, std::string("\1\2\3\4", 4)});
    }
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(outcome(m), "loaded") << f.name;
    expect_says(::testing::internal::GetCapturedStderr(),
                {"ignored 2 tensors: multi-token prediction", "ignored 1 tensors: vision tower"},
                f.name);
    for (const char* stray : {".weight_extra", ".input_scale", ".k_scale", ".bias_2"}) {
      TestModel more = f.model;
      more.tensors.push_back({kUp + stray, "F32", {1}, std::string("\0\0\x80\x3f", 4)});
      expect_says(outcome(more), {kUp + stray, "used or ignored"}, f.name);
    }
  }
}

}  // namespace
}  // namespace quern::smoke
