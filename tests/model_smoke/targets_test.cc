// Every instruction set that Highway compiled the layers for, on whatever of them this CPU has.

#include "model_smoke/layers/simd_targets.h"
// Highway's list of targets depends on the line above.
#include <hwy/targets.h>

#include <string>

#include "model_smoke/layers/attention.h"
#include "model_smoke/layers/conv1d.h"
#include "model_smoke/layers/delta_rule.h"
#include "model_smoke/layers/norm.h"
#include "model_smoke/layers/rope.h"
#include "tests/model_smoke/layer_support.h"

namespace quern::smoke {
namespace {

/// Restricts dynamic dispatch to one target for the length of a test.
class OneTarget {
 public:
  explicit OneTarget(int64_t target) { hwy::GetChosenTarget().Update(target); }
  ~OneTarget() { hwy::GetChosenTarget().DeInit(); }  // the next dispatch asks the CPU again
};

class Targets : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    if ((hwy::SupportedTargets() & GetParam()) == 0) {
      GTEST_SKIP() << "this CPU has no " << hwy::TargetName(GetParam());
    }
  }
};

constexpr int64_t kRows = 70;  // more than one chunk of the delta rule

TEST_P(Targets, RowLayersAgreeWithTheTwins) {
  const OneTarget target(GetParam());
  ExecFixture twin(LayerImpl::kScalar), simd(LayerImpl::kSimd);
  constexpr int64_t kWidth = 43;
  const Tensor x = random_tensor(DType::kBF16, kRows, kWidth, 31);
  const Tensor z = random_tensor(DType::kBF16, kRows, kWidth, 32);
  const std::vector<float> w = random_vector(kWidth, 33);
  const auto row = [](auto m) { return heads_of(m, 1, kWidth, kWidth); };
  Tensor expected(DType::kBF16, kRows, kWidth), actual(DType::kBF16, kRows, kWidth);

  rms_norm(twin.exec, x.view(), view_of(w), 1e-6f, expected.mutable_view());
  rms_norm(simd.exec, x.view(), view_of(w), 1e-6f, actual.mutable_view());
  expect_close_bf16(actual, expected, 0);
  gated_rms_norm(twin.exec, row(x.view()), row(z.view()), view_of(w), 1e-6f,
                 row(expected.mutable_view()));
  gated_rms_norm(simd.exec, row(x.view()), row(z.view()), view_of(w), 1e-6f,
                 row(actual.mutable_view()));
  expect_close_bf16(actual, expected, 0, 2);
  silu_mul(twin.exec, x.view(), z.view(), expected.mutable_view());
  silu_mul(simd.exec, x.view(), z.view(), actual.mutable_view());
  expect_close_bf16(actual, expected, 0);

  const ConvWeights taps(random_vector(kWidth * 4, 34).data(), kWidth, 4);
  ConvState a(kWidth, 4), b(kWidth, 4);
  conv1d_silu(twin.exec, x.view(), taps, a, expected.mutable_view());
  conv1d_silu(simd.exec, x.view(), taps, b, actual.mutable_view());
  expect_close_bf16(actual, expected, 100 * 0x1p-21f);
  EXPECT_EQ(a.rows, b.rows);

  RopeTable table(22, 1e4);
  table.fill(5, kRows, DType::kBF16);
  expected = random_tensor(DType::kBF16, kRows, kWidth, 31);
  actual = random_tensor(DType::kBF16, kRows, kWidth, 31);
  rope_half_split(twin.exec, table, row(expected.mutable_view()));
  rope_half_split(simd.exec, table, row(actual.mutable_view()));
  expect_close_bf16(actual, expected, 12 * 0x1p-23f);
}

TEST_P(Targets, DeltaRuleAgreesWithTheTwin) {
  const OneTarget target(GetParam());
  const DeltaShape shape{.key_heads = 2, .value_heads = 4, .key_dim = 20, .value_dim = 37};
  const Tensor qkv = random_tensor(DType::kBF16, kRows, shape.channels(), 41);
  Tensor g(DType::kF32, kRows, 4), beta(DType::kF32, kRows, 4);
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t h = 0; h < 4; ++h) {
      g.row<float>(t)[h] = -0.05f * static_cast<float>((t * 7 + h) % 13);
      beta.row<float>(t)[h] = static_cast<float>((t * 5 + h) % 11) / 10.0f;
    }
  }
  for (const DeltaForm form : {DeltaForm::kRecurrent, DeltaForm::kChunked}) {
    ExecFixture twin(LayerImpl::kScalar), simd(LayerImpl::kSimd);
    Tensor expected(DType::kBF16, kRows, shape.value_width());
    Tensor actual(DType::kBF16, kRows, shape.value_width());
    DeltaState a(shape), b(shape);
    const auto run = [&](LayerExec& exec, Tensor& o, DeltaState& state) {
      gated_delta_rule(
          exec, shape,
          {.qkv = qkv.view(), .g = g.view(), .beta = beta.view(), .o = o.mutable_view()}, form,
          state);
    };
    run(twin.exec, expected, a);
    run(simd.exec, actual, b);
    EXPECT_LE(relative_error(b.data, a.data), 1e-5);
    expect_close_bf16(actual, expected, 4e-5f);
  }
}

TEST_P(Targets, AttentionAgreesWithTheTwin) {
  const OneTarget target(GetParam());
  constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 40;
  const Tensor q = random_tensor(DType::kBF16, kRows, kHeads * kDim, 51, 2.0f);
  const Tensor gate = random_tensor(DType::kBF16, kRows, kHeads * kDim, 52);
  const Tensor k = random_tensor(DType::kBF16, kRows, kKvHeads * kDim, 53);
  const Tensor v = random_tensor(DType::kBF16, kRows, kKvHeads * kDim, 54);
  KvCache cache(DType::kBF16, kKvHeads, kDim);
  cache.reserve(kRows);
  cache.append(heads_of(k.view(), kKvHeads, kDim, kDim), heads_of(v.view(), kKvHeads, kDim, kDim));
  ExecFixture twin(LayerImpl::kScalar), simd(LayerImpl::kSimd);
  Tensor expected(DType::kBF16, kRows, kHeads * kDim), actual(DType::kBF16, kRows, kHeads * kDim);
  const auto run = [&](LayerExec& exec, Tensor& out) {
    gated_attention(exec,
                    {.q = heads_of(q.view(), kHeads, kDim, kDim),
                     .gate = heads_of(gate.view(), kHeads, kDim, kDim),
                     .first_position = 0,
                     .out = heads_of(out.mutable_view(), kHeads, kDim, kDim)},
                    cache);
  };
  run(twin.exec, expected);
  run(simd.exec, actual);
  expect_close_bf16(actual, expected, 0x1p-10f * 5);  // as in attention_test.cc
}

INSTANTIATE_TEST_SUITE_P(All, Targets, testing::Values(HWY_AVX3, HWY_AVX2, HWY_EMU128),
                         [](const auto& test) { return std::string(hwy::TargetName(test.param)); });

}  // namespace
}  // namespace quern::smoke
