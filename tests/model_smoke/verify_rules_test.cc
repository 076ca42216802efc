// Which tolerance row is chosen, what counts as a violation, which switches are refused.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "model_smoke/goldens.h"
#include "model_smoke/input_error.h"
#include "model_smoke/options.h"
#include "model_smoke/safetensors_writer.h"
#include "model_smoke/verify_run.h"
#include "tests/support/source_dir.h"

namespace quern::smoke {
namespace {

TEST(ChooseMode, DefaultsAndLegalPairs) {
  const auto w8a8 = QuantMethod::kW8A8Int8, none = QuantMethod::kNone, gptq = QuantMethod::kGptq;
  EXPECT_EQ(choose_mode(Backend::kReference, std::nullopt, w8a8).act, ActMode::kF32);
  EXPECT_EQ(choose_mode(Backend::kReference, std::nullopt, gptq).act, ActMode::kF32);
  EXPECT_EQ(choose_mode(Backend::kJit, std::nullopt, w8a8).act, ActMode::kInt8);
  EXPECT_EQ(choose_mode(Backend::kJit, std::nullopt, none).act, ActMode::kBF16);
  for (const QuantMethod int4 :
       {QuantMethod::kGptq, QuantMethod::kAwq, QuantMethod::kCompressedTensorsInt4}) {
    EXPECT_EQ(choose_mode(Backend::kJit, std::nullopt, int4).act, ActMode::kBF16);
    EXPECT_EQ(choose_mode(Backend::kJit, ActMode::kInt8, int4).act, ActMode::kInt8);
  }
  EXPECT_EQ(choose_mode(Backend::kJit, ActMode::kBF16, w8a8).act, ActMode::kBF16);
  EXPECT_EQ(choose_mode(Backend::kReference, ActMode::kInt8, w8a8).act, ActMode::kInt8);
}

std::string refusal(Backend backend, ActMode act, QuantMethod method) {
  try {
    choose_mode(backend, act, method);
  } catch (const InputError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(ChooseMode, IllegalPairsListTheLegalOnes) {
  EXPECT_EQ(
      refusal(Backend::kJit, ActMode::kF32, QuantMethod::kW8A8Int8),
      "--act: expected bf16, int8 (with --backend jit on a model with int8 weights), got f32");
  EXPECT_EQ(
      refusal(Backend::kJit, ActMode::kF32, QuantMethod::kAwq),
      "--act: expected bf16, int8 (with --backend jit on a model with int4 weights), got f32");
  EXPECT_EQ(refusal(Backend::kJit, ActMode::kInt8, QuantMethod::kNone),
            "--act: expected bf16 (with --backend jit on a model with no int8 or int4 weights), "
            "got int8");
  EXPECT_EQ(refusal(Backend::kReference, ActMode::kInt8, QuantMethod::kNone),
            "--act: expected f32, bf16 (with --backend reference on a model with no int8 or int4 "
            "weights), got int8");
}

TEST(Switches, KvCache) {
  CommonOptions options;
  EXPECT_EQ(options.parsed_kv_cache(), KvCacheChoice::kAuto);
  options.kv_cache = "fp8";
  EXPECT_EQ(options.parsed_kv_cache(), KvCacheChoice::kFp8);
  options.kv_cache = "bf16";
  EXPECT_EQ(options.parsed_kv_cache(), KvCacheChoice::kBF16);
}

LogitStats stats_with_error(float error) {
  const float expected[2] = {1, 0}, actual[2] = {1 + error, 0};
  LogitStats s;
  s.add(expected, actual, 1, 2);
  return s;
}

TEST(Violations, EachNumberIsHeld) {
  Tolerance t;
  EXPECT_TRUE(violations(stats_with_error(0.5f), t).empty());
  t.max_abs = 0.25;
  t.rel_rms = 0.25;
  t.kl = 1e-4;
  EXPECT_EQ(violations(stats_with_error(0.5f), t).size(), 3u);
  EXPECT_TRUE(violations(stats_with_error(0), t).empty());
  t.argmax = 0.5;
  EXPECT_EQ(violations(stats_with_error(-2), t).size(), 4u);
  EXPECT_EQ(violations(stats_with_error(NAN), t).size(), 5u);  // all four, and not finite
}

TEST(Violations, GreedyTokensMayPartOnlyAtCloseDecisions) {
  PromptResult prompt;
  prompt.golden = stats_with_error(0);
  prompt.greedy_equal = 3;
  prompt.first_margin = 0.3;
  Tolerance t;
  EXPECT_TRUE(violations(prompt, t).empty());  // not checked
  t.greedy_margin = 0.5;
  EXPECT_TRUE(violations(prompt, t).empty());
  t.greedy_margin = 0.1;
  EXPECT_EQ(violations(prompt, t).size(), 1u);
  t.greedy_margin = -1;  // the exact row
  prompt.first_margin = 0.0;
  EXPECT_EQ(violations(prompt, t).size(), 1u);
}

TEST(SafetensorsWriter, IsReadBack) {
  const std::string path = testing::TempDir() + "quern_writer_test.safetensors";
  const float a[6] = {1, 2, 3, 4, 5, 6}, b[1] = {-0.5f};
  {
    std::ofstream out(path, std::ios::binary);
    write_safetensors(out, {{"prompt0.logits", a, 2, 3}, {"prompt1.logits", b, 1, 1}});
  }
  const SafetensorsFile file(FileMap::open_user_file(path));
  ASSERT_EQ(file.tensors().size(), 2u);
  const TensorView* first = file.find("prompt0.logits");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->dtype, FileDType::kF32);
  EXPECT_EQ(first->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(first->data, a, sizeof(a)), 0);
  EXPECT_EQ(std::memcmp(file.find("prompt1.logits")->data, b, sizeof(b)), 0);
  std::filesystem::remove(path);
}

/// Which row of the two golden READMEs belongs to which golden file.
class ToleranceRows : public testing::Test {
 protected:
  static Tolerance row(const std::string& model, const ComputeMode& mode) {
    const std::string root = quern::test::source_dir();
    const ModelDir dir(root + "/model_smoke/checkpoints/" + model);
    return choose_tolerance(Goldens::load(dir, "", 1024), mode);
  }
};

TEST_F(ToleranceRows, Trained) {
  const Tolerance exact = row("qwen35_docs", {Backend::kReference, ActMode::kF32});
  EXPECT_EQ(exact.max_abs, 1e-3);
  EXPECT_LT(*exact.greedy_margin, 0);
  const Tolerance bf16 = row("qwen35_docs", {Backend::kJit, ActMode::kBF16});
  EXPECT_EQ(bf16.rel_rms, 0.01);
  EXPECT_EQ(bf16.kl, 5e-4);
  EXPECT_EQ(bf16.argmax, 0.97);
  EXPECT_EQ(bf16.greedy_margin, 0.1);
  const Tolerance int8 = row("qwen35_docs.w8a8_int8", {Backend::kJit, ActMode::kInt8});
  EXPECT_EQ(int8.against, Tolerance::Logits::kActq);
  EXPECT_EQ(int8.rel_rms, 0.02);
  EXPECT_EQ(int8.kl, 2e-3);
  EXPECT_FALSE(int8.greedy_margin.has_value());
}

}  // namespace
}  // namespace quern::smoke
