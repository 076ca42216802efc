// int4 checkpoints whose tensors and config say different things (loading-rules.md A8, A9, D): an
// error that names both readings, never a guess.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "model_smoke/input_error.h"
#include "tests/model_smoke/int4_model.h"

namespace quern::smoke {
namespace {

using test::Int4File;
using test::Int4Style;
using test::Json;
using test::kUp;
using test::logits_of;
using test::TempDir;
using test::TestModel;
using test::TestTensor;

struct Contradiction {
  const char* name;
  Int4Style style;
  std::function<void(TestModel&)> bend;
  std::vector<const char*> says;
};

std::string up(const char* suffix) {
  return std::string(kUp) + suffix;
}

void drop(TestModel& m, const std::string& tensor) {
  std::erase_if(m.tensors, [&](const TestTensor& t) { return t.name == tensor; });
}

const std::vector<Contradiction>& contradictions() {
  const Int4Style gptq{Int4File::kGptq, 8, true, false}, v2{Int4File::kGptqV2, 8, true, false};
  const Int4Style asym{Int4File::kGptq, 8, false, false}, act{Int4File::kGptq, 8, true, true};
  const Int4Style awq{Int4File::kAwq, 8, false, false};
  const Int4Style ct{Int4File::kCompressedTensors, 8, false, true};
  const auto set_word = [](const std::string& tensor, uint32_t word) {
    return [tensor, word](TestModel& m) {
      std::string& bytes = m.tensor(tensor).bytes;
      for (size_t at = 0; at < bytes.size(); at += 4) std::memcpy(bytes.data() + at, &word, 4);
    };
  };
  static const std::vector<Contradiction> all = {
      // T03: written as v2, said to be v1, and the other way round.
      {"v2 content in v1",
       gptq,
       set_word(up(".qzeros"), 0x88888888u),
       {"up_proj.qzeros", "zeros stored as 7", "symmetric (zero 8)", "checkpoint_format gptq,",
        "8 for column 0", "reads as zero 9"}},
      {"v1 content in v2",
       v2,
       set_word(up(".qzeros"), 0x77777777u),
       {"up_proj.qzeros", "zeros stored as 8", "gptq_v2", "reads as zero 7"}},
      {"stored 15", gptq, set_word(up(".qzeros"), 0xffffffffu), {"reads as zero 16"}},
      {"one other zero",
       gptq,  // L07
       [](TestModel& m) { m.tensor(up(".qzeros")).bytes[1] = 0x73; },
       {"3 for column 2, group 0", "reads as zero 4"}},
      // A8
      {"both weight and qweight",
       gptq,
       [](TestModel& m) {
         m.tensors.push_back({up(".weight"), "BF16", {24, 16}, std::string(768, '\1')});
       },
       {"up_proj.", "beside model.layers.0.mlp.up_proj.weight", "BF16 [24, 16]"}},
      {"both weight and weight_packed",
       ct,
       [](TestModel& m) {
         m.tensors.push_back({up(".weight"), "BF16", {24, 16}, std::string(768, '\1')});
       },
       {"weight_packed", "beside model.layers.0.mlp.up_proj.weight"}},
      {"a weight of size 0",
       gptq,
       [](TestModel& m) {
         m.tensors.push_back({up(".weight"), "BF16", {0, 16}, {}});
       },
       {"beside model.layers.0.mlp.up_proj.weight", "BF16 [0, 16]"}},
      {"AWQ's words in a compressed-tensors file",
       ct,
       [](TestModel& m) {
         m.tensors.push_back({up(".qweight"), "I32", {2, 24}, std::string(192, '\1')});
       },
       {"up_proj.qweight", "a tensor of another format"}},
      // A9
      {"no scales", gptq, [](TestModel& m) { drop(m, up(".scales")); }, {"up_proj.scales", "none"}},
      {"no qzeros",
       asym,
       [](TestModel& m) { drop(m, up(".qzeros")); },
       {"up_proj.qzeros", "because the weights are not symmetric", "none"}},
      {"no g_idx",
       act,
       [](TestModel& m) { drop(m, up(".g_idx")); },
       {"up_proj.g_idx", "activation order", "none"}},
      {"no qweight",
       gptq,
       [](TestModel& m) { drop(m, up(".qweight")); },
       {"up_proj.qweight", "the codes that belong to", "none"}},
      {"nothing at all",
       gptq,
       [](TestModel& m) {
         for (const char* part : {".qweight", ".qzeros", ".scales", ".g_idx"}) drop(m, up(part));
       },
       {"up_proj.weight", "none"}},
      {"awq: no scales", awq, [](TestModel& m) { drop(m, up(".scales")); }, {"up_proj.scales"}},
      {"awq: no qzeros", awq, [](TestModel& m) { drop(m, up(".qzeros")); }, {"up_proj.qzeros"}},
      {"ct: no scale",
       ct,
       [](TestModel& m) { drop(m, up(".weight_scale")); },
       {"up_proj.weight_scale"}},
      {"ct: no zeros",
       ct,
       [](TestModel& m) { drop(m, up(".weight_zero_point")); },
       {"up_proj.weight_zero_point", "not symmetric"}},
      {"ct: no g_idx",
       ct,
       [](TestModel& m) { drop(m, up(".weight_g_idx")); },
       {"up_proj.weight_g_idx", "activation order"}},
      // L12
      {"g_idx below 0",
       act,
       [](TestModel& m) { m.tensor(up(".g_idx")).bytes.replace(0, 4, "\xff\xff\xff\xff", 4); },
       {"up_proj.g_idx", "groups from 0 to 1", "-1 at index 0"}},
      {"g_idx too large",
       act,
       [](TestModel& m) { m.tensor(up(".g_idx")).bytes[8] = 2; },
       {"up_proj.g_idx", "groups from 0 to 1", "2 at index 2"}},
      // shapes and values
      {"another group size",
       gptq,
       [](TestModel& m) { m.config["quantization_config"]["group_size"] = 16; },
       {"scales", "F16, BF16 or F32 [1, "}},
      {"a scale that is infinite",
       gptq,
       [](TestModel& m) { m.tensor(up(".scales")).bytes.replace(2, 2, "\x00\x7c", 2); },
       {"up_proj.scales", "finite", "index 1"}},
      {"weight_shape",
       ct,
       [](TestModel& m) { m.tensor(up(".weight_shape")).bytes[0] = 25; },
       {"up_proj.weight_shape", "[24, 16]", "[25, 16]"}},
      {"codes of another type",
       gptq,
       [](TestModel& m) { m.tensor(up(".qweight")).dtype = "F32"; },
       {"up_proj.qweight", "I32 [2, 24]", "F32"}},
      // A10
      {"excluded and quantized",
       gptq,
       [](TestModel& m) { m.config["quantization_config"]["dynamic"]["-:.*up_proj"] = Json(); },
       {"up_proj.qweight", "a plain weight", "dynamic rule \"-:.*up_proj\""}},
      {"awq: excluded and quantized",
       awq,
       [](TestModel& m) {
         m.config["quantization_config"]["modules_to_not_convert"].push_back("0.mlp.up");
       },
       {"up_proj.qweight", "modules_to_not_convert entry \"0.mlp.up\""}},
      {"ct: excluded and quantized",
       ct,
       [](TestModel& m) { m.config["quantization_config"]["ignore"].push_back(kUp); },
       {"up_proj.weight_packed", "a plain weight", "ignore entry"}},
      {"ct: plain and not excluded",
       ct,
       [](TestModel& m) { m.config["quantization_config"]["ignore"] = {"lm_head"}; },
       {"in_proj_", "int4 codes", "add the module to ignore"}},
      {"rules that disagree",
       gptq,
       [](TestModel& m) {
         auto& rules = m.config["quantization_config"]["dynamic"];
         rules["+:.*up_proj"] = {{"group_size", 4}};
         rules[".*mlp.*"] = Json::object();
       },
       {"dynamic", "say the same of", "JSON objects have no order"}},
      {"eight bits for one module",
       gptq,
       [](TestModel& m) {
         m.config["quantization_config"]["dynamic"]["+:.*up_proj"] = {{"bits", 8}};
       },
       {"dynamic", "bits", "8"}},
  };
  return all;
}

TEST(Int4Contradictions, AreErrorsThatNameBothReadings) {
  for (const Contradiction& c : contradictions()) {
    TestModel model = test::tiny_int4_model(c.style);
    const TempDir good, bad;
    model.write(good);
    ASSERT_NO_THROW(logits_of(good.path(), {"reference", "f32"})) << c.name;
    c.bend(model);
    model.write(bad);
    try {
      logits_of(bad.path(), {"reference", "f32"});
      ADD_FAILURE() << c.name << " was loaded";
    } catch (const InputError& e) {
      for (const char* part : c.says) {
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos)
            << c.name << ": no \"" << part << "\" in: " << e.what();
      }
    }
  }
}

TEST(Int4Contradictions, QuantizeConfigBesideConfig) {
  TestModel model = test::tiny_int4_model();
  Json beside = model.config["quantization_config"];
  model.raw["quantize_config.json"] = beside.dump();
  const TempDir same, other;
  model.write(same);
  EXPECT_NO_THROW(logits_of(same.path(), {"reference", "f32"}));
  beside["sym"] = false;
  model.raw["quantize_config.json"] = beside.dump();
  model.write(other);
  try {
    logits_of(other.path(), {"reference", "f32"});
    ADD_FAILURE() << "loaded";
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("quantize_config.json"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("sym"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace quern::smoke
