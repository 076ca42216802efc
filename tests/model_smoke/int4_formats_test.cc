// int4 checkpoints: the rules of loading-rules.md A10 and D, forms without golden values against
// forms that have them, and what inspect says.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "model_smoke/input_error.h"
#include "model_smoke/int4_module.h"
#include "model_smoke/session.h"
#include "tests/model_smoke/int4_model.h"
#include "tests/model_smoke/load_outcome.h"
#include "tests/support/source_dir.h"

namespace quern::smoke {
namespace {

using test::Int4File;
using test::Int4Style;
using test::kUp;
using test::logits_of;
using test::Mode;
using test::TempDir;
using test::TestModel;
using test::TestTensor;

std::string path_of(const std::string& name) {
  const std::string root = quern::test::source_dir();
  const std::string in_tree = root + "/model_smoke/checkpoints/" + name;
  if (std::filesystem::exists(in_tree)) return in_tree;
  for (const char* shared : {"/../shared/goldens/public/", "/../shared/checkpoints/"}) {
    if (std::filesystem::exists(root + shared + name)) return root + shared + name;
  }
  return {};
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

// Shapes, groups and mixtures that the goldens do not have: each op within the bound of its
// formula. What the weights stand for is D_Int4 in integer_rules_test.cc.
TEST(Int4Forms, BackendsAgreeOnTinyModels) {
  for (const Int4File file :
       {Int4File::kGptq, Int4File::kGptqV2, Int4File::kAwq, Int4File::kCompressedTensors}) {
    for (const int64_t group : {8, 16, 5, -1}) {
      for (const bool symmetric : {true, false}) {
        const bool act_order = file != Int4File::kAwq && group > 0;
        SCOPED_TRACE(std::string(name_of(file)) + " group " + std::to_string(group));
        for (const Mode& run : runs()) {
          if (run.backend == "reference") continue;
          test::expect_ops_hold(test::tiny_int4_model({file, group, symmetric, act_order}), run);
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
  std::string& g_idx = model.tensor(std::string(kUp) + ".g_idx").bytes;
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
