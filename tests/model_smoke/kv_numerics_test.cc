// loading-rules.md B12: the numbers of an FP8 key/value cache.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "model_smoke/goldens.h"
#include "model_smoke/session.h"
#include "model_smoke/verify_run.h"
#include "tests/model_smoke/float_model.h"
#include "tests/model_smoke/int4_model.h"
#include "tests/support/source_dir.h"

namespace quern::smoke {
namespace {

using test::add_kv_scales;
using test::TempDir;
using test::TestModel;
using test::tiny_kv_model;

/// Golden values with an FP8 cache and without, and each far from the other.
TEST(LoadingRules, B12_GoldenValuesWithAndWithout) {
  const std::string path =
      quern::test::source_dir() + "/model_smoke/checkpoints/qwen35_docs.nvfp4_all";
  const auto run = [&](const char* kv_cache, bool fp8_row) {
    CommonOptions options;
    options.model = path;
    options.backend = "reference";
    options.kv_cache = kv_cache;
    options.threads = 2;
    Session session(options);
    const Goldens goldens = Goldens::load(session.dir(), "", session.config().vocab_size);
    ComputeMode mode = session.model().mode();
    mode.fp8_kv = fp8_row;
    const Tolerance tolerance = choose_tolerance(goldens, mode);
    const VerifyResult result = run_goldens(session.model(), goldens, tolerance);
    std::vector<std::string> failed = violations(result.golden, tolerance);
    for (const PromptResult& p : result.prompts) {
      for (const std::string& text : violations(p, tolerance)) failed.push_back(text);
    }
    return failed.size();
  };
  EXPECT_EQ(run("auto", true), 0u);
  EXPECT_EQ(run("fp8", true), 0u);
  EXPECT_EQ(run("bf16", false), 0u);
  EXPECT_GT(run("bf16", true), 0u);
  EXPECT_GT(run("fp8", false), 0u);
}

/// The caches of the attention layer of a tiny model after 40 tokens, and the logits. The layer
/// before it knows no keys and values, so what goes into them does not depend on the cache.
struct Ran {
  LayerCache layer;
  std::vector<float> logits;
};
Ran run_tiny(const TestModel& m, const test::Mode& run) {
  const TempDir dir;
  m.write(dir);
  CommonOptions options;
  options.model = dir.path();
  options.backend = run.backend;
  options.act = run.act;
  options.threads = 2;
  Session session(options);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 40; ++i) ids.push_back((i * 37 + 11) % 260);
  ModelCache cache = session.model().make_cache();
  Tensor logits;
  session.model().forward(ids, cache, {}, logits);
  return {std::move(cache.layers[1]),
          std::vector<float>(logits.row<float>(0),
                             logits.row<float>(0) + logits.rows() * logits.cols())};
}
Ran run_tiny_fp8(float k, float v, const test::Mode& run) {
  TestModel m = tiny_kv_model("FP8");
  add_kv_scales(m, k, v);
  return run_tiny(m, run);
}

template <typename F>
void for_elements(const KvCache& cache, F&& f) {
  for (int64_t head = 0; head < cache.heads(); ++head) {
    for (int64_t t = 0; t < cache.length(); ++t) {
      for (int64_t i = 0; i < cache.head_dim(); ++i) f(head, t * cache.stride() + i);
    }
  }
}

float stored(const KvCache& cache, bool key, int64_t head, int64_t at) {
  if (cache.dtype() == DType::kF32) {
    return key ? cache.keys<float>(head)[at] : cache.values<float>(head)[at];
  }
  return (key ? cache.keys<bfloat16>(head)[at] : cache.values<bfloat16>(head)[at]).to_float();
}

/// Every byte of the model's cache is the code nearest to x / scale, the even one of two, with 448
/// for all above: x is what the same model without an FP8 cache keeps. In both backends.
TEST(LoadingRules, B12_BytesOfTheCache) {
  std::vector<test::Mode> runs = {{"reference", "f32"}, {"reference", "bf16"}};
  if (Context().isa() != IsaLevel::kNone) runs.push_back({"jit", "bf16"});
  const KvScales scales[] = {{0x1p-6f, 0x1p-7f},
                             {0.023f, 0.007f},      // usual ones
                             {0x1p-11f, 0x1p-14f},  // most saturate
                             {3.7f, 11.0f},         // most are subnormal
                             {1, 1}};
  for (const test::Mode& run : runs) {
    const KvCache plain = run_tiny(test::tiny_model(), run).layer.kv;
    for (const KvScales& s : scales) {
      const KvCache cache = run_tiny_fp8(s.k, s.v, run).layer.kv;
      ASSERT_EQ(cache.dtype(), DType::kE4M3);
      ASSERT_EQ(cache.length(), 40);
      int64_t wrong = 0, saturated = 0;
      for_elements(cache, [&](int64_t head, int64_t at) {
        const uint8_t k = cache.keys<e4m3>(head)[at].bits, v = cache.values<e4m3>(head)[at].bits;
        wrong += k != test::nearest_e4m3(stored(plain, true, head, at) / s.k);
        wrong += v != test::nearest_e4m3(stored(plain, false, head, at) / s.v);
        saturated += ((k & 0x7f) == 0x7e) + ((v & 0x7f) == 0x7e);
      });
      EXPECT_EQ(wrong, 0) << run.backend << " " << run.act << " " << s.k;
      EXPECT_EQ(saturated > 0, s.k == 0x1p-11f) << run.backend << " " << s.k;
    }
  }
}

/// Scores times k_scale, outputs times v_scale: with scales twice as large, codes that are neither
/// subnormal nor 448 have one exponent less and stand for the same numbers. Powers of two, so every
/// product is exact and the logits have the same bits; a scale left out, or the other one in its
/// place, would show.
TEST(LoadingRules, B12_ScalesComeBackInScoresAndOutputs) {
  const test::Mode run{"reference", "f32"};
  constexpr float kK = 0x1p-6f, kV = 0x1p-7f;
  const Ran base = run_tiny_fp8(kK, kV, run);
  const KvCache& cache = base.layer.kv;
  for_elements(cache, [&](int64_t head, int64_t at) {
    for (const e4m3 x : {cache.keys<e4m3>(head)[at], cache.values<e4m3>(head)[at]}) {
      // Normal after halving too, or zero.
      ASSERT_TRUE((x.bits & 0x7f) == 0 || ((x.bits & 0x7f) >= 0x10 && (x.bits & 0x7f) < 0x7e));
    }
  });
  EXPECT_EQ(run_tiny_fp8(2 * kK, kV, run).logits, base.logits);
  EXPECT_EQ(run_tiny_fp8(kK, 2 * kV, run).logits, base.logits);
  EXPECT_EQ(run_tiny_fp8(2 * kK, 2 * kV, run).logits, base.logits);
  EXPECT_NE(run_tiny(test::tiny_model(), run).logits, base.logits);
}

}  // namespace
}  // namespace quern::smoke
