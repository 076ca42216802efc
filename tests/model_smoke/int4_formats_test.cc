// int4 checkpoints: the rules of loading-rules.md A8-A10 and D, forms without golden values against
// forms that have them, and what inspect says.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "model_smoke/input_error.h"
#include "model_smoke/int4_module.h"
#include "model_smoke/metrics.h"
#include "model_smoke/session.h"
#include "tests/model_smoke/int4_model.h"
#include "tests/support/source_dir.h"

namespace quern::smoke {
namespace {

using test::Int4File;
using test::Int4Style;
using test::TempDir;
using test::TestModel;
using test::TestTensor;

constexpr char kUp[] = "model.layers.0.mlp.up_proj";

struct Mode {
  std::string backend;
  std::string act;
  std::string isa = "auto";
};

std::string path_of(const std::string& name) {
  const std::string root = quern::test::source_dir();
  const std::string in_tree = root + "/model_smoke/checkpoints/" + name;
  if (std::filesystem::exists(in_tree)) return in_tree;
  for (const char* shared : {"/../shared/goldens/public/", "/../shared/checkpoints/"}) {
    if (std::filesystem::exists(root + shared + name)) return root + shared + name;
  }
  return {};
}

std::vector<float> logits_of(const std::string& path, const Mode& run) {
  CommonOptions options;
  options.model = path;
  options.backend = run.backend;
  options.act = run.act;
  options.isa = run.isa;
  options.threads = 2;
  Session session(options);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 40; ++i) {
    ids.push_back((i * 37 + 11) % static_cast<int32_t>(session.config().vocab_size));
  }
  ModelCache cache = session.model().make_cache();
  Tensor logits;
  session.model().forward(ids, cache, {}, logits);
  return std::vector<float>(logits.row<float>(0),
                            logits.row<float>(0) + logits.rows() * logits.cols());
}

std::vector<Mode> runs() {
  std::vector<Mode> all = {{"reference", "f32"}, {"reference", "bf16"}, {"reference", "int8"}};
  if (Context().isa() >= IsaLevel::kAvx512) {
    all.push_back({"jit", "bf16", "avx512"});
    all.push_back({"jit", "int8", "avx512"});
  }
  if (Context().isa() >= IsaLevel::kAmx) {
    all.push_back({"jit", "bf16", "amx"});
    all.push_back({"jit", "int8", "amx"});
  }
  return all;
}

double distance(const std::vector<float>& actual, const std::vector<float>& expected) {
  LogitStats stats;
  stats.add(expected.data(), actual.data(), 1, static_cast<int64_t>(expected.size()));
  return stats.relative_rms();
}

// ---- forms
// ---------------------------------------------------------------------------------------

// The same weights in every form give the same bits, whoever multiplies them.
void expect_same_logits(const std::string& source, const std::vector<Int4File>& files) {
  const std::string path = path_of(source);
  if (path.empty()) GTEST_SKIP() << source << " is no part of the tree";
  for (const Mode& run : runs()) {
    const std::vector<float> expected = logits_of(path, run);
    for (const Int4File file : files) {
      const TempDir dir;
      test::reencoded(path, file).write(dir);
      EXPECT_EQ(logits_of(dir.path(), run), expected)
          << name_of(file) << " " << run.backend << " " << run.act << " " << run.isa;
    }
  }
}

TEST(Int4Forms, TheModelInTheTreeInEveryForm) {
  expect_same_logits("qwen35_docs.gptq_g128", {Int4File::kGptq, Int4File::kGptqV2, Int4File::kAwq,
                                               Int4File::kCompressedTensors});
}
TEST(Int4Forms, SymmetricGroupsOf32) {
  expect_same_logits("qwen35_dense.gptq_g32", {Int4File::kGptqV2, Int4File::kCompressedTensors});
}
TEST(Int4Forms, AsymmetricInActivationOrder) {
  expect_same_logits("qwen35_dense.gptq_act", {Int4File::kGptqV2, Int4File::kCompressedTensors});
}
TEST(Int4Forms, AwqAsCompressedTensorsAndGptq) {
  expect_same_logits("qwen35_dense.awq", {Int4File::kGptqV2, Int4File::kCompressedTensors});
}

// Shapes, groups and mixtures that the goldens do not have: jit and reference with the same
// activations round at the same places, as in tiny_model_test.cc.
TEST(Int4Forms, BackendsAgreeOnTinyModels) {
  for (const Int4File file :
       {Int4File::kGptq, Int4File::kGptqV2, Int4File::kAwq, Int4File::kCompressedTensors}) {
    for (const int64_t group : {8, 16, 5, -1}) {
      for (const bool symmetric : {true, false}) {
        const bool act_order = file != Int4File::kAwq && group > 0;
        const TempDir dir;
        test::tiny_int4_model({file, group, symmetric, act_order}).write(dir);
        for (const Mode& run : runs()) {
          if (run.backend == "reference") continue;
          const std::vector<float> expected = logits_of(dir.path(), {"reference", run.act});
          const double tolerance = run.act == "int8" ? 0.02 : 0.01;
          EXPECT_LE(distance(logits_of(dir.path(), run), expected), tolerance)
              << name_of(file) << " group " << group << " " << run.act << " " << run.isa;
        }
      }
    }
  }
}

/// Bug log L12: what g_idx says counts, whatever the flag says, and sorted ones are none.
TEST(Int4Forms, TheGroupsOfTheFileCountNotTheFlag) {
  TestModel honest = test::tiny_int4_model({Int4File::kGptq, 8, false, true});
  TestModel silent = honest;
  silent.config["quantization_config"]["desc_act"] = false;
  const TempDir one, two;
  honest.write(one);
  silent.write(two);
  const Mode run{"reference", "f32"};
  EXPECT_EQ(logits_of(two.path(), run), logits_of(one.path(), run));
  TestModel sorted = test::tiny_int4_model({Int4File::kGptq, 8, false, false});
  TestModel flagged = sorted;
  flagged.config["quantization_config"]["desc_act"] = true;
  std::erase_if(sorted.tensors, [](const TestTensor& t) { return t.name.ends_with(".g_idx"); });
  const TempDir three, four;
  sorted.write(three);
  flagged.write(four);
  EXPECT_EQ(logits_of(four.path(), run), logits_of(three.path(), run));
  EXPECT_NE(logits_of(four.path(), run), logits_of(one.path(), run));
}

/// Bug log L07: placeholders of symmetric modules may be nothing, or blank.
TEST(Int4Forms, BlankAndAbsentPlaceholdersMeanEight) {
  const Mode run{"reference", "f32"};
  TestModel model = test::tiny_int4_model();
  const TempDir stored, blank, absent;
  model.write(stored);
  for (TestTensor& t : model.tensors) {
    if (t.name.ends_with(".qzeros")) t.bytes.assign(t.bytes.size(), '\0');
  }
  model.write(blank);
  std::erase_if(model.tensors, [](const TestTensor& t) { return t.name.ends_with(".qzeros"); });
  model.write(absent);
  const std::vector<float> expected = logits_of(stored.path(), run);
  EXPECT_EQ(logits_of(blank.path(), run), expected);
  EXPECT_EQ(logits_of(absent.path(), run), expected);
}

/// loading-rules.md A10: overrides of `dynamic` reach the module they name.
TEST(Int4Forms, DynamicRulesOverrideTheGroup) {
  TestModel model = test::tiny_int4_model({Int4File::kGptq, 8, true, false});
  const TestModel fine = test::tiny_int4_model({Int4File::kGptq, 4, true, false});
  for (const TestTensor& t : fine.tensors) {
    if (t.name.starts_with(kUp)) model.tensor(t.name) = t;
  }
  model.config["quantization_config"]["dynamic"]["+:.*layers\\.0\\.mlp\\.up_proj"] = {
      {"group_size", 4}};
  const TempDir dir;
  model.write(dir);
  EXPECT_NO_THROW(logits_of(dir.path(), {"reference", "f32"}));
}

/// A bias of zeros, as GPTQ writers add it, is ignored and said; another one is an error.
TEST(Int4Forms, ABiasOfZerosThatTheModelHasNot) {
  TestModel model = test::tiny_int4_model();
  model.tensors.push_back({std::string(kUp) + ".bias", "F16", {24}, std::string(48, '\0')});
  const TempDir zeros, other;
  model.write(zeros);
  ::testing::internal::CaptureStderr();
  logits_of(zeros.path(), {"reference", "f32"});
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("a bias of zeros"), std::string::npos);
  model.tensor(std::string(kUp) + ".bias").bytes[0] = 1;
  model.write(other);
  EXPECT_THROW(logits_of(other.path(), {"reference", "f32"}), InputError);
}

// ---- content that contradicts the config
// ---------------------------------------------------------

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

TEST(Int4Rules, EntriesThatMatchNothingAreReported) {  // A10
  for (const Int4File file : {Int4File::kGptq, Int4File::kAwq, Int4File::kCompressedTensors}) {
    TestModel model = test::tiny_int4_model({file, 8, true, false});
    auto& quant = model.config["quantization_config"];
    if (file == Int4File::kGptq) quant["dynamic"]["-:.*ghost.*"] = Json::object();
    if (file == Int4File::kAwq) quant["modules_to_not_convert"].push_back("ghost");
    if (file == Int4File::kCompressedTensors) quant["ignore"].push_back("re:.*ghost.*");
    const TempDir dir;
    model.write(dir);
    ::testing::internal::CaptureStderr();
    logits_of(dir.path(), {"reference", "f32"});
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("ghost"), std::string::npos) << name_of(file) << said;
    EXPECT_EQ(said.find("in_proj_"), std::string::npos) << name_of(file) << said;
  }
}

TEST(Int4Rules, GateAndUpOfOneFormAreOneOp) {
  const TempDir same, other;
  test::tiny_int4_model().write(same);
  TestModel model = test::tiny_int4_model({Int4File::kGptq, 8, true, true});
  // up in another order than the gate: group 1 before group 0
  std::string& g_idx = model.tensor(up(".g_idx")).bytes;
  for (size_t at = 0; at < g_idx.size(); at += 4) g_idx[at] = g_idx[at] == 0 ? 1 : 0;
  model.write(other);
  const auto joined = [](const std::string& path) {
    CommonOptions options;
    options.model = path;
    options.backend = "reference";
    options.act = "bf16";
    Session session(options, Session::Purpose::kInspect);
    for (const LinearOp* op : session.model().ops()) {
      if (op->name().find("layers.0.mlp.gate_proj") != std::string::npos) {
        return op->info().joined + "|" + op->info().stored;
      }
    }
    return std::string();
  };
  EXPECT_EQ(joined(same.path()),
            "gate and up interleaved in one op, SiLU-mul in its epilogue|"
            "int4 gptq, group 8, zero 8, f16 scales");
  EXPECT_EQ(joined(other.path()),
            "gate and up apart: up is in another order of columns|"
            "int4 gptq, group 8, zero 8, f16 scales, activation order");
}

}  // namespace
}  // namespace quern::smoke
