// Shapes and mixtures that the golden checkpoints do not have, on a tiny random model: the backends
// must agree where they round at the same places.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "model_smoke/input_error.h"
#include "model_smoke/metrics.h"
#include "model_smoke/session.h"
#include "tests/model_smoke/temp_dir.h"
#include "tests/model_smoke/test_model.h"

namespace quern::smoke {
namespace {

using test::TempDir;
using test::TestModel;
using test::TestTensor;

constexpr int64_t kTokens = 70;

Tensor logits_of(const std::string& path, const std::string& backend, const std::string& act) {
  CommonOptions options;
  options.model = path;
  options.backend = backend;
  options.act = act;
  options.threads = 2;
  Session session(options);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kTokens; ++i) {
    ids.push_back((i * 37 + 11) % static_cast<int32_t>(session.config().vocab_size));
  }
  ModelCache cache = session.model().make_cache();
  Tensor logits;
  session.model().forward(ids, cache, {}, logits);
  return logits;
}

/// jit and reference with the same activations round at the same places; what is left is the order
/// of f32 sums, which now and then moves a bf16 rounding (2^-8), and an int8 one (1/127 of a row).
void expect_backends_agree(const TestModel& model, const std::string& act, double tolerance) {
  if (Context().isa() == IsaLevel::kNone) GTEST_SKIP() << "no kernel runs on this CPU";
  const TempDir dir;
  model.write(dir);
  const Tensor expected = logits_of(dir.path(), "reference", act);
  const Tensor actual = logits_of(dir.path(), "jit", act);
  LogitStats stats;
  stats.add(expected.row<float>(0), actual.row<float>(0), kTokens, expected.cols());
  EXPECT_LE(stats.relative_rms(), tolerance);
  EXPECT_GE(stats.argmax_agreement(), 0.9);
}

TEST(TinyModel, Bf16) {
  expect_backends_agree(test::tiny_model(), "bf16", 0.01);
}

TEST(TinyModel, Int8Activations) {
  expect_backends_agree(test::tiny_int8_model(), "int8", 0.02);
}

TEST(TinyModel, Int8WeightsWithBf16Activations) {
  expect_backends_agree(test::tiny_int8_model(), "bf16", 0.01);
}

/// The tensor in F32, each number with bits that bf16 does not have.
void widen(TestTensor& t) {
  std::string bytes;
  for (size_t i = 0; i + 1 < t.bytes.size(); i += 2)
    bytes += {'\x55', '\x55', t.bytes[i], t.bytes[i + 1]};
  t.dtype = "F32";
  t.bytes = std::move(bytes);
}

TEST(TinyModel, RoundingF32WeightsToBf16IsSaid) {
  TestModel model = test::tiny_model();
  for (TestTensor& t : model.tensors) {
    if (t.name.find("mlp.down_proj.weight") != std::string::npos) widen(t);
  }
  const TempDir dir;
  model.write(dir);
  const auto warnings = [&](const std::string& act) {
    ::testing::internal::CaptureStderr();
    logits_of(dir.path(), "reference", act);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(warnings("bf16").find("2 weight matrices are F16 or F32 and are rounded to bf16"),
            std::string::npos);
  EXPECT_EQ(warnings("f32").find("rounded"), std::string::npos);
}

TEST(TinyModel, AttentionBiases) {
  expect_backends_agree(test::with_biases(test::tiny_model()), "bf16", 0.01);
  expect_backends_agree(test::with_biases(test::tiny_int8_model()), "int8", 0.02);
}

TEST(TinyModel, BiasesAreUsed) {
  const TempDir plain, biased;
  test::tiny_model().write(plain);
  test::with_biases(test::tiny_model()).write(biased);
  const Tensor a = logits_of(plain.path(), "reference", "f32");
  const Tensor b = logits_of(biased.path(), "reference", "f32");
  LogitStats stats;
  stats.add(a.row<float>(0), b.row<float>(0), kTokens, a.cols());
  EXPECT_GE(stats.relative_rms(), 1e-3);
}

/// Neighbours of different formats cannot share a matrix, nor gate and up an op.
TEST(TinyModel, MixedFormatsInOneInput) {
  expect_backends_agree(test::mixed_model("mlp.up_proj"), "int8", 0.02);
  expect_backends_agree(test::mixed_model("self_attn.k_proj"), "int8", 0.02);
  expect_backends_agree(test::mixed_model("linear_attn.in_proj_z"), "int8", 0.02);
}

/// A head with the bits of the embedding contradicts nothing; it is ignored, and that is said.
TEST(TinyModel, ATiedHeadWithTheSameBitsIsSaid) {
  TestModel model = test::tiny_model();
  model.config["tie_word_embeddings"] = true;
  const TempDir absent, present;
  model.tensor("lm_head.weight").bytes = model.tensor("model.embed_tokens.weight").bytes;
  model.write(present);
  std::erase_if(model.tensors, [](const TestTensor& t) { return t.name == "lm_head.weight"; });
  model.write(absent);
  const Tensor expected = logits_of(absent.path(), "reference", "f32");
  ::testing::internal::CaptureStderr();
  const Tensor actual = logits_of(present.path(), "reference", "f32");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(
                "tied: the same bits as model.embed_tokens.weight"),
            std::string::npos);
  EXPECT_EQ(std::memcmp(actual.row<float>(0), expected.row<float>(0),
                        static_cast<size_t>(kTokens * actual.cols()) * sizeof(float)),
            0);
}

TEST(TinyModel, LeftoverTensorsAreAnError) {
  const TempDir dir;
  TestModel model = test::tiny_model();
  model.tensors.push_back(
      {"model.layers.0.mlp.mystery.weight", "BF16", {2}, std::string("\0\1\2\3", 4)});
  model.write(dir);
  EXPECT_THROW(logits_of(dir.path(), "reference", "f32"), InputError);
}

}  // namespace
}  // namespace quern::smoke
