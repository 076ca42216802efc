// FP8 and NVFP4 checkpoints: loading-rules.md B16, B17 and the formats of D that have no golden
// set, re-encoded from those that have.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "model_smoke/session.h"
#include "tests/model_smoke/float_model.h"
#include "tests/model_smoke/load_outcome.h"
#include "tests/support/source_dir.h"

namespace quern::smoke {
namespace {

using test::BendMatrix;
using test::expect_ops_hold;
using test::FloatFile;
using test::FloatMatrix;
using test::jit_modes;
using test::logits_of;
using test::Mode;
using test::TempDir;
using test::TestModel;
using test::tiny_float_model;
using test::TinyFloat;

constexpr char kNvfp4[] = "/model_smoke/checkpoints/qwen35_docs.nvfp4_all";
constexpr char kFp8Block[] = "/../shared/goldens/public/qwen35_dense.fp8_block";

const Mode kF32{"reference", "f32"}, kBF16{"reference", "bf16"};

/// e4m3 codes of the golden file with one power of two for the tensor, or one for each row: numbers
/// that bf16 holds.
BendMatrix powers_of_two(bool by_row) {
  return [by_row](const std::string&, FloatMatrix& m) {
    const int exponent = std::ilogb(m.scale.front());
    m.block_n = by_row ? 1 : -1;
    m.block_k = -1;
    m.scale.clear();
    for (int64_t r = 0; r < m.scale_rows(); ++r) {
      m.scale.push_back(std::ldexp(1.0f, exponent - static_cast<int>(r % 3)));
    }
  };
}

/// The weights in every one of the forms give the bits of the same numbers in a plain file. Kernels
/// sum in another order: all forms alike, bit for bit, and each op within the bound of its formula.
void expect_plain_logits(const std::string& source, const std::vector<FloatFile>& files,
                         const BendMatrix& bend) {
  const std::string path = quern::test::source_dir() + source;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is no part of the tree";
  const std::vector<float> expected =
      logits_of(reencoded_float(path, FloatFile::kPlain, bend), kF32);
  for (const FloatFile file : files) {
    EXPECT_EQ(logits_of(reencoded_float(path, file, bend), kF32), expected) << name_of(file);
  }
  for (const Mode& run : jit_modes()) {
    const std::vector<float> first = logits_of(reencoded_float(path, files.front(), bend), run);
    for (const FloatFile file : files) {
      EXPECT_EQ(logits_of(reencoded_float(path, file, bend), run), first)
          << name_of(file) << run.isa;
    }
    expect_ops_hold(reencoded_float(path, files.front(), bend), run);
  }
}

/// fp8's `weight_scale_inv` and compressed-tensors' strategy "block".
TEST(LoadingRules, D_Fp8Block) {
  expect_plain_logits(kFp8Block, {FloatFile::kFp8Block, FloatFile::kCtFp8}, {});
}
TEST(LoadingRules, D_Fp8PerTensor) {
  expect_plain_logits(kFp8Block, {FloatFile::kFp8, FloatFile::kCtFp8}, powers_of_two(false));
}
TEST(LoadingRules, D_Fp8PerChannel) {
  expect_plain_logits(kFp8Block, {FloatFile::kFp8, FloatFile::kCtFp8}, powers_of_two(true));
}
TEST(LoadingRules, D_ModelOptFp8) {
  expect_plain_logits(kFp8Block, {FloatFile::kModelOptFp8}, powers_of_two(false));
  expect_plain_logits(kFp8Block, {FloatFile::kModelOptFp8}, powers_of_two(true));
}

/// Against the source itself, its FP8 cache and all.
void expect_source_logits(const std::vector<FloatFile>& files, const BendMatrix& bend) {
  const std::string path = quern::test::source_dir() + kNvfp4;
  const TestModel source = reencoded_float(path, FloatFile::kModelOptNvfp4, bend);
  std::vector<Mode> runs = jit_modes();
  runs.insert(runs.end(), {kF32, kBF16});
  for (const Mode& run : runs) {
    const std::vector<float> expected = logits_of(source, run);
    if (!bend) {
      EXPECT_EQ(expected, logits_of(path, run));
    }
    for (const FloatFile file : files) {
      EXPECT_EQ(logits_of(reencoded_float(path, file, bend), run), expected) << name_of(file);
    }
  }
}

TEST(LoadingRules, D_ModelOptNvfp4) {
  expect_source_logits({FloatFile::kNestedNvfp4, FloatFile::kBothNvfp4}, {});
}
TEST(LoadingRules, D_CompressedTensorsNvfp4) {
  expect_source_logits({FloatFile::kCtNvfp4}, test::invertible_global);
}
/// Both ways of writing the global scale, and what one read as the other would give.
TEST(LoadingRules, B17_DivisorsAndMultipliers) {
  const auto bend = [](const std::string& module, FloatMatrix& m) {
    m.global *= module.ends_with("up_proj") ? 0.5f : 3.0f;
    test::invertible_global(module, m);
  };
  const std::vector<float> multiplier =
      logits_of(tiny_float_model({.file = FloatFile::kModelOptNvfp4, .bend = bend}), kF32);
  const std::vector<float> divisor =
      logits_of(tiny_float_model({.file = FloatFile::kCtNvfp4, .bend = bend}), kF32);
  EXPECT_EQ(divisor, multiplier);
  const auto inverse = [&](const std::string& module, FloatMatrix& m) {
    bend(module, m);
    m.global = 1.0f / m.global;
  };
  EXPECT_NE(logits_of(tiny_float_model({.file = FloatFile::kCtNvfp4, .bend = inverse}), kF32),
            multiplier);
}

/// Shapes that are multiples of nothing; lists of both kinds; every form of a tiny model against
/// its numbers in a plain file.
TEST(FloatForms, TinyModelsAgreeWithTheirNumbers) {
  struct Blocks {
    FloatFile file;
    int64_t n, k;
  };
  const std::vector<Blocks> all = {
      {FloatFile::kFp8Block, 8, 8},      {FloatFile::kFp8Block, 24, 10},
      {FloatFile::kFp8Block, 5, 128},    {FloatFile::kFp8Block, 128, 7},
      {FloatFile::kFp8, -1, -1},         {FloatFile::kFp8, 1, -1},
      {FloatFile::kCtFp8, -1, -1},       {FloatFile::kCtFp8, 1, -1},
      {FloatFile::kCtFp8, 8, 8},         {FloatFile::kCtFp8, 24, 10},
      {FloatFile::kCtFp8, 1, 8},         {FloatFile::kCtFp8, 1, 5},
      {FloatFile::kModelOptFp8, -1, -1}, {FloatFile::kModelOptFp8, 1, -1}};
  for (const Blocks& b : all) {
    for (const bool uniform : {false, true}) {
      TinyFloat style{.file = b.file, .block_n = b.n, .block_k = b.k, .uniform = uniform};
      const std::vector<float> actual = logits_of(tiny_float_model(style), kF32);
      style.file = FloatFile::kPlain;
      EXPECT_EQ(actual, logits_of(tiny_float_model(style), kF32))
          << name_of(b.file) << " " << b.n << " x " << b.k;
      style.file = b.file;
      SCOPED_TRACE(std::string(name_of(b.file)) + " " + std::to_string(b.n) + " x " +
                   std::to_string(b.k));
      for (const Mode& run : jit_modes()) expect_ops_hold(tiny_float_model(style), run);
    }
  }
}

/// Every form of scales against the formula, without our reader of plain files.
TEST(FloatForms, ProjectionsAgainstTheFormula) {
  struct Scales {
    FloatFile file;
    int64_t n, k;
  };
  for (const Scales& s : std::vector<Scales>{{FloatFile::kFp8Block, 8, 8},
                                             {FloatFile::kFp8Block, 5, 7},
                                             {FloatFile::kCtFp8, 5, 7},
                                             {FloatFile::kCtFp8, 128, 128},
                                             {FloatFile::kCtFp8, 1, 5},
                                             {FloatFile::kCtFp8, 1, 8},
                                             {FloatFile::kCtFp8, 1, -1},
                                             {FloatFile::kCtFp8, -1, -1},
                                             {FloatFile::kModelOptFp8, 1, -1},
                                             {FloatFile::kModelOptFp8, -1, -1},
                                             {FloatFile::kModelOptNvfp4, -1, -1},
                                             {FloatFile::kCtNvfp4, -1, -1}}) {
    SCOPED_TRACE(std::string(name_of(s.file)) + " " + std::to_string(s.n) + " x " +
                 std::to_string(s.k));
    const std::string down = "model.layers.0.mlp.down_proj";
    FloatMatrix w;
    const auto keep = [&](const std::string& module, FloatMatrix& matrix) {
      test::invertible_global(module, matrix);
      if (module == down) w = matrix;
    };
    const TestModel m =
        tiny_float_model({.file = s.file, .block_n = s.n, .block_k = s.k, .bend = keep});
    test::expect_projection_holds(m, down, w);
  }
}

/// loading-rules.md B16: gate and up, q, k and v, each with a global scale of its own. Powers of
/// two, so the numbers are bf16's, and a chain of f32 sums of products is the same multiple of
/// itself wherever the scale acts: bits equal to those of the plain model.
TEST(LoadingRules, B16_PartsKeepTheirGlobalScales) {
  const auto bend = [](const std::string& module, FloatMatrix& m) {
    m.global = 0x1p-6f;
    if (module.ends_with("up_proj")) m.global = 0x1p-9f;
    if (module.ends_with("k_proj")) m.global = 0x1p-8f;
    if (module.ends_with("v_proj") || module.ends_with("in_proj_z")) m.global = 0x1p-5f;
  };
  const auto no_bend = [](const std::string&, FloatMatrix& m) { m.global = 0x1p-6f; };
  const auto with = [](FloatFile file, const BendMatrix& how) {
    // The codes of a model do not depend on the form: as NVFP4 first, then written plain.
    TestModel m = tiny_float_model({.file = FloatFile::kModelOptNvfp4, .bend = how});
    const TempDir dir;
    m.write(dir);
    return reencoded_float(dir.path(), file);
  };
  for (const FloatFile file : {FloatFile::kModelOptNvfp4, FloatFile::kCtNvfp4}) {
    EXPECT_EQ(logits_of(with(file, bend), kF32), logits_of(with(FloatFile::kPlain, bend), kF32));
    const std::vector<float> expected = logits_of(with(FloatFile::kPlainBf16, bend), kBF16);
    EXPECT_EQ(logits_of(with(file, bend), kBF16), expected) << name_of(file);
    EXPECT_NE(logits_of(with(file, no_bend), kBF16), expected) << name_of(file);
    for (const Mode& run : jit_modes()) expect_ops_hold(with(file, bend), run);
  }
}

/// Qwen's releases have BF16 scales, DeepSeek's F32.
TEST(FloatForms, ScalesOfBlocksMayBeBf16) {
  const auto powers = [](const std::string&, FloatMatrix& m) {
    for (size_t i = 0; i < m.scale.size(); ++i)
      m.scale[i] = std::ldexp(1.0f, -3 - static_cast<int>(i % 3));
  };
  const TestModel f32 = tiny_float_model({.bend = powers});
  TestModel bf16 = f32;
  for (test::TestTensor& t : bf16.tensors) {
    if (!t.name.ends_with(".weight_scale_inv")) continue;
    std::string upper;
    for (size_t i = 0; i < t.bytes.size(); i += 4) upper += t.bytes.substr(i + 2, 2);
    t.dtype = "BF16";
    t.bytes = upper;
  }
  std::vector<Mode> runs = jit_modes();
  runs.insert(runs.end(), {kF32, kBF16});
  for (const Mode& run : runs) EXPECT_EQ(logits_of(bf16, run), logits_of(f32, run)) << run.backend;
}

/// Bug log L06: exporters name the scales of blocks in two ways, and both multiply.
TEST(FloatForms, ScalesOfBlocksHaveTwoNames) {
  const TestModel inverse = tiny_float_model({});
  for (const bool all : {false, true}) {
    TestModel scale = inverse;
    bool rename = true;
    for (test::TestTensor& t : scale.tensors) {
      if (!t.name.ends_with(".weight_scale_inv")) continue;
      if (rename) t.name.resize(t.name.size() - 4);
      rename = all || !rename;
    }
    std::vector<Mode> runs = jit_modes();
    runs.insert(runs.end(), {kF32, kBF16});
    for (const Mode& run : runs)
      EXPECT_EQ(logits_of(scale, run), logits_of(inverse, run)) << run.backend;
  }
}

std::string info_of(const TestModel& model, const std::string& op_name,
                    std::string LinearInfo::*field) {
  const TempDir dir;
  model.write(dir);
  CommonOptions options;
  options.model = dir.path();
  options.backend = "reference";
  options.act = "bf16";
  Session session(options, Session::Purpose::kInspect);
  for (const LinearOp* op : session.model().ops()) {
    if (op->name().starts_with(op_name)) return op->info().*field;
  }
  return "no such op";
}

TEST(FloatForms, WhatIsJoinedAndWhy) {
  const std::string q = "model.layers.1.self_attn.q_proj";
  const std::string gate = "model.layers.0.mlp.gate_proj";
  const auto joined = [&](const TinyFloat& style, const std::string& op) {
    return info_of(tiny_float_model(style), op, &LinearInfo::joined);
  };
  EXPECT_EQ(joined({.block_n = 8}, q), "one matrix: one input, one format");
  EXPECT_NE(joined({.block_n = 24}, q).find("behind 64 rows, not whole blocks of 24"),
            std::string::npos);
  EXPECT_NE(joined({.file = FloatFile::kFp8, .block_n = -1, .block_k = -1}, q)
                .find("of a scale of its own"),
            std::string::npos);
  const auto other_k = [](const std::string& module, FloatMatrix& m) {
    if (module.ends_with("k_proj") || module.ends_with("up_proj")) m.global *= 2;
  };
  EXPECT_EQ(joined({.file = FloatFile::kModelOptNvfp4}, q), "one matrix: one input, one format");
  EXPECT_NE(joined({.file = FloatFile::kModelOptNvfp4, .bend = other_k}, q).find("global scale"),
            std::string::npos);
  EXPECT_EQ(joined({.file = FloatFile::kModelOptNvfp4, .bend = other_k}, gate),
            "gate and up interleaved in one op, SiLU-mul in its epilogue");
  EXPECT_EQ(joined({.block_n = 10, .block_k = 3}, gate),
            "gate and up interleaved in one op, SiLU-mul in its epilogue");
}

TEST(FloatForms, InspectSaysHow) {
  const auto stored = [](FloatFile file, int64_t block_n, int64_t block_k) {
    return info_of(tiny_float_model({.file = file, .block_n = block_n, .block_k = block_k}),
                   "model.layers.0.mlp.down_proj", &LinearInfo::stored);
  };
  EXPECT_EQ(stored(FloatFile::kCtFp8, 8, 5), "fp8 e4m3, 8 x 5 blocks, f32 scales");
  EXPECT_EQ(stored(FloatFile::kCtFp8, 1, 5), "fp8 e4m3, a scale per row and 5 columns, f32 scales");
  EXPECT_EQ(stored(FloatFile::kCtFp8, 1, -1), "fp8 e4m3, a scale per row, f32 scales");
  EXPECT_EQ(stored(FloatFile::kCtFp8, -1, -1), "fp8 e4m3, one scale, f32 scales");
}

TEST(FloatForms, InspectSaysWhy) {
  const auto decided = [](FloatFile file, const std::string& op) {
    return info_of(tiny_float_model({.file = file}), op, &LinearInfo::decided);
  };
  EXPECT_EQ(decided(FloatFile::kFp8Block, "model.layers.0.mlp.gate_proj"),
            "quantized: weight is F8_E4M3; config.json has the target \"Linear\" and no "
            "modules_to_not_convert entry for it");
  EXPECT_EQ(
      decided(FloatFile::kNestedNvfp4, "lm_head"),
      "plain: weight is BF16; hf_quant_config.json has the exclude_modules entry \"lm_head\"");
  EXPECT_EQ(decided(FloatFile::kCtNvfp4, "model.layers.0.mlp.down_proj"),
            "quantized: weight_packed is U8; config.json has the target \"Linear\" and no ignore "
            "entry for it");
}

}  // namespace
}  // namespace quern::smoke
