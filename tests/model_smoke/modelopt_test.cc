// ModelOpt's algorithms for all modules that differ from FP8 and NVFP4: in activations alone, and
// in factors of the input (NVFP4_AWQ).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
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
using test::pre_quant_scale;
using test::TempDir;
using test::TestModel;
using test::TestTensor;
using test::tiny_float_model;
using test::TinyFloat;

const Mode kF32{"reference", "f32"};
const std::string kUp = test::kUp, kDown = "model.layers.0.mlp.down_proj";

/// Names for all modules at once that differ from FP8 and NVFP4 in activations alone.
TEST(ModelOpt, AlgorithmsOfOtherActivations) {
  const auto with = [](FloatFile file, const char* algorithm, int64_t block_n, int64_t block_k) {
    TestModel m = tiny_float_model({.file = file, .block_n = block_n, .block_k = block_k});
    Json& quant = m.config["quantization_config"];
    quant["quant_algo"] = algorithm;
    if (block_k > 0) quant["group_size"] = block_k;
    return m;
  };
  const auto numbers = [](FloatFile file, int64_t block_n, int64_t block_k) {
    return logits_of(
        tiny_float_model({.file = file, .block_n = block_n, .block_k = block_k, .numbers = true}),
        kF32);
  };
  const FloatFile fp8 = FloatFile::kModelOptFp8, fp4 = FloatFile::kModelOptNvfp4;
  EXPECT_EQ(logits_of(with(fp8, "FP8_PER_CHANNEL_PER_TOKEN", 1, -1), kF32), numbers(fp8, 1, -1));
  EXPECT_EQ(logits_of(with(fp8, "FP8_PB_WO", 8, 8), kF32), numbers(fp8, 8, 8));
  EXPECT_EQ(logits_of(with(fp8, "fp8_pb_wo", 8, 8), kF32), numbers(fp8, 8, 8));
  EXPECT_EQ(logits_of(with(fp4, "W4A16_NVFP4", -1, -1), kF32), numbers(fp4, -1, -1));
  EXPECT_EQ(logits_of(with(fp4, "NVFP4_AWQ", -1, -1), kF32), numbers(fp4, -1, -1));
  expect_says(outcome(with(fp8, "FP8_PER_CHANNEL_PER_TOKEN", -1, -1)),
              {".weight_scale", "expected [", "got F32 []"}, "a tensor");
  expect_says(outcome(with(fp8, "FP8_PB_WO", -1, -1)), {".weight_scale", "128 x 128", "got F32 []"},
              "no blocks");
}

std::vector<float> powers(int64_t k, int seed) {
  std::vector<float> out;
  for (int64_t i = 0; i < k; ++i) {
    out.push_back(std::ldexp(1.0f, static_cast<int>((i * 7 + seed) % 5) - 2));
  }
  return out;
}

/// Powers of two are exact wherever they multiply, so a plain file whose columns hold them has the
/// very same products: bits equal with f32 activations.
TEST(NvfpAwq, FactorsMultiplyTheInput) {
  const TinyFloat nvfp4{.file = FloatFile::kModelOptNvfp4};
  TinyFloat plain = nvfp4;
  plain.numbers = true;
  TestModel awq = tiny_float_model(nvfp4), numbers = tiny_float_model(plain);
  const std::vector<float> without = logits_of(numbers, kF32);
  awq.config["quantization_config"]["quant_algo"] = "NVFP4_AWQ";
  // One of q, k and v; gate and up of two kinds, and of one; what has no norm before it.
  const struct {
    std::string module;
    int seed;
  } scaled[] = {{"model.layers.1.self_attn.k_proj", 0},
                {"model.layers.1.self_attn.o_proj", 1},
                {"model.layers.0.mlp.gate_proj", 2},
                {"model.layers.0.mlp.up_proj", 3},
                {"model.layers.1.mlp.gate_proj", 4},
                {"model.layers.1.mlp.up_proj", 4},
                {kDown, 1},
                {"model.layers.0.linear_attn.in_proj_z", 2}};
  for (const auto& s : scaled) {
    TestTensor& weight = numbers.tensor(s.module + ".weight");
    const int64_t k = weight.shape[1];
    const std::vector<float> factors = powers(k, s.seed);
    for (int64_t i = 0; i < weight.shape[0] * k; ++i) {
      float value;
      std::memcpy(&value, weight.bytes.data() + 4 * i, 4);
      value *= factors[static_cast<size_t>(i % k)];
      std::memcpy(weight.bytes.data() + 4 * i, &value, 4);
    }
    awq.tensors.push_back(pre_quant_scale(s.module, factors));
  }
  const std::vector<float> expected = logits_of(numbers, kF32);
  EXPECT_EQ(logits_of(awq, kF32), expected);
  EXPECT_NE(expected, without);
  for (const Mode& run : test::jit_modes()) test::expect_ops_hold(awq, run);

  const TempDir dir;
  awq.write(dir);
  CommonOptions options;
  options.model = dir.path();
  options.backend = "reference";
  options.act = "bf16";
  Session session(options, Session::Purpose::kInspect);
  std::string stored, joined, decided;
  for (const LinearOp* op : session.model().ops()) {
    stored += op->name() + " is " + op->info().stored + "\n";
    joined += op->name() + " is " + op->info().joined + "\n";
    decided += op->name() + " is " + op->info().decided + "\n";
  }
  expect_says(stored,
              {kDown + " is nvfp4, e4m3 scales of 16 columns, global scale 0.013 "
                       "multiplies, pre_quant_scale on the input\n"},
              "stored");
  expect_says(
      decided,
      {kDown + " is quantized: weight is U8; config.json has the target \"Linear\" and no "
               "ignore entry for it; pre_quant_scale multiplies its input\n",
       "model.layers.1.mlp.down_proj is quantized: weight is U8; config.json has the target "
       "\"Linear\" and no ignore entry for it; no pre_quant_scale, so its writer folded it"},
      "decided");
  expect_says(joined,
              {"model.layers.0.mlp.gate_proj is gate and up apart: each has a pre_quant_scale of",
               "model.layers.1.mlp.gate_proj+model.layers.1.mlp.up_proj is gate and up interleaved",
               "model.layers.1.self_attn.k_proj is of a pre_quant_scale of its own"},
              "joined");
}

/// Any factors: y = sum of w (x s), where x s is rounded once to the activations' type.
TEST(NvfpAwq, ProjectionsAgainstTheFormula) {
  FloatMatrix w;
  const auto keep = [&](const std::string& module, FloatMatrix& matrix) {
    if (module == kDown) w = matrix;
  };
  TestModel m = tiny_float_model({.file = FloatFile::kModelOptNvfp4, .bend = keep});
  m.config["quantization_config"]["quant_algo"] = "NVFP4_AWQ";
  std::vector<float> factors;
  for (int64_t i = 0; i < w.k; ++i) {
    factors.push_back(
        bfloat16::from_float(0.3f + 0.11f * static_cast<float>(i * 5 % 17)).to_float());
  }
  m.tensors.push_back(pre_quant_scale(kDown, factors));
  test::expect_projection_holds(m, kDown, w, factors);
}

TEST(NvfpAwq, WhatIsNoFactor) {
  struct Case {
    const char* name;
    std::function<void(TestModel&, TestTensor&)> bend;
    std::vector<std::string> says;
  };
  const std::string name = kUp + ".pre_quant_scale";
  const auto quant = [](TestModel& m) -> Json& { return m.config["quantization_config"]; };
  const std::vector<Case> cases = {
      {"quant_algo NVFP4",
       [&](TestModel& m, TestTensor&) { quant(m)["quant_algo"] = "NVFP4"; },
       {name, "quant_algo NVFP4_AWQ", "NVFP4 in "}},
      {"said to be absent",
       [&](TestModel& m, TestTensor&) { quant(m)["pre_quant_scale"] = false; },
       {name, "quant_algo NVFP4_AWQ", "NVFP4_AWQ with pre_quant_scale false in "}},
      {"of the rows",
       [](TestModel&, TestTensor& t) { t = pre_quant_scale(kUp, powers(24, 0)); },
       {name, "[16], a factor for each column of K", "BF16 [24]"}},
      {"one for all",
       [](TestModel&, TestTensor& t) { t = pre_quant_scale(kUp, {2.0f}); },
       {name, "[16]", "BF16 [1]"}},
      {"a matrix",
       [](TestModel&, TestTensor& t) {
         t.shape = {1, 16};
       },
       {name, "[16]"}},
      {"zero",
       [](TestModel&, TestTensor& t) { t.bytes.replace(6, 2, std::string(2, '\0')); },
       {name, "finite positive", "0 at index 3"}},
      {"negative",
       [](TestModel&, TestTensor& t) { t.bytes[7] = '\xbf'; },
       {name, "finite positive", "at index 3"}},
      {"NaN",
       [](TestModel&, TestTensor& t) { t.bytes.replace(6, 2, "\xc0\x7f"); },
       {name, "finite positive", "nan at index 3"}},
      {"infinite",
       [](TestModel&, TestTensor& t) { t.bytes.replace(6, 2, "\x80\x7f"); },
       {name, "finite positive", "inf at index 3"}},
      {"integers", [](TestModel&, TestTensor& t) { t.dtype = "I16"; }, {name, "F32, BF16 or F16"}},
      {"beside a plain weight",
       [](TestModel& m, TestTensor& t) {
         t.name = "lm_head.pre_quant_scale";
         t.shape = {16};
         (void)m;
       },
       {"lm_head.pre_quant_scale", "no scale beside lm_head.weight"}},
      {"of no module",
       [](TestModel&, TestTensor& t) { t.name = "model.layers.0.mlp.pre_quant_scale"; },
       {"model.layers.0.mlp.pre_quant_scale", "used or ignored"}},
  };
  for (const Case& c : cases) {
    TestModel m = tiny_float_model({.file = FloatFile::kModelOptNvfp4});
    quant(m)["quant_algo"] = "NVFP4_AWQ";
    m.tensors.push_back(pre_quant_scale(kUp, powers(16, 0)));
    ASSERT_EQ(outcome(m), "loaded");
    c.bend(m, m.tensors.back());
    expect_says(outcome(m), c.says, c.name);
  }
  // The key says so too.
  TestModel m = tiny_float_model({.file = FloatFile::kModelOptNvfp4});
  quant(m)["pre_quant_scale"] = true;
  m.tensors.push_back(pre_quant_scale(kUp, powers(16, 0)));
  EXPECT_EQ(outcome(m), "loaded");
}

}  // namespace
}  // namespace quern::smoke
