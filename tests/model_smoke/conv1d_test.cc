#include "model_smoke/layers/conv1d.h"

#include "tests/model_smoke/layer_support.h"

namespace quern::smoke {
namespace {

float silu(double x) {
  return static_cast<float>(x / (1.0 + std::exp(-x)));
}

TEST(Conv1d, LastTapIsTheCurrentToken) {
  ExecFixture f(LayerImpl::kScalar);
  const float w[4] = {1000, 100, 10, 1};
  const ConvWeights weights(w, 1, 4);
  ConvState state(1, 4);
  Tensor u(DType::kF32, 5, 1), y(DType::kF32, 5, 1);
  for (int t = 0; t < 5; ++t) u.row<float>(t)[0] = 1e-3f * static_cast<float>(t + 1);
  conv1d_silu(f.exec, u.view(), weights, state, y.mutable_view());
  // Zeros before the sequence, then 1, 2, 3, 4, 5 (thousandths) slide through.
  const double sums[5] = {0.001, 0.012, 0.123, 1.234, 2.345};
  for (int t = 0; t < 5; ++t) EXPECT_NEAR(y.row<float>(t)[0], silu(sums[t]), 1e-6f) << t;
  // The state holds tokens 3, 4, 5.
  EXPECT_EQ(state.rows[0], u.row<float>(2)[0]);
  EXPECT_EQ(state.rows[static_cast<size_t>(state.stride)], u.row<float>(3)[0]);
  EXPECT_EQ(state.rows[static_cast<size_t>(2 * state.stride)], u.row<float>(4)[0]);
}

struct ConvCase {
  int64_t channels, taps;
};

class Conv1dShapes : public testing::TestWithParam<ConvCase> {};

/// Any cut of the sequence gives the bits of the whole: the state carries exact inputs.
TEST_P(Conv1dShapes, ContinuationIsExact) {
  const auto [channels, taps] = GetParam();
  constexpr int64_t kTokens = 11;
  for (const LayerImpl impl : {LayerImpl::kScalar, LayerImpl::kSimd}) {
    ExecFixture f(impl, 2);
    const Tensor u = random_tensor(DType::kBF16, kTokens, channels, 4);
    const ConvWeights w(random_vector(channels * taps, 5).data(), channels, taps);
    ConvState whole_state(channels, taps);
    Tensor whole(DType::kBF16, kTokens, channels);
    conv1d_silu(f.exec, u.view(), w, whole_state, whole.mutable_view());
    for (int64_t cut = 1; cut < kTokens; ++cut) {
      ConvState state(channels, taps);
      Tensor y(DType::kBF16, kTokens, channels);
      const auto part = [&](int64_t first, int64_t count) {
        MatrixView in = u.view();
        in.data = u.row<bfloat16>(first);
        in.rows = count;
        MutableMatrixView out = y.mutable_view();
        out.data = y.row<bfloat16>(first);
        out.rows = count;
        conv1d_silu(f.exec, in, w, state, out);
      };
      part(0, cut);
      part(cut, kTokens - cut);
      EXPECT_TRUE(same_bits(y, whole)) << "cut after " << cut;
      EXPECT_EQ(state.rows, whole_state.rows) << "cut after " << cut;
    }
  }
}

TEST_P(Conv1dShapes, HighwayAgreesWithTheTwin) {
  const auto [channels, taps] = GetParam();
  ExecFixture twin(LayerImpl::kScalar), simd(LayerImpl::kSimd, 2);
  const Tensor u = random_tensor(DType::kBF16, 9, channels + 3, 6);
  const MatrixView in = columns(u.view(), 1, channels);  // a slice of a wider matrix
  const ConvWeights w(random_vector(channels * taps, 7).data(), channels, taps);
  ConvState a(channels, taps), b(channels, taps);
  Tensor expected(DType::kBF16, 9, channels), actual(DType::kBF16, 9, channels);
  conv1d_silu(twin.exec, in, w, a, expected.mutable_view());
  conv1d_silu(simd.exec, in, w, b, actual.mutable_view());
  // Sums of `taps` products of normal numbers: below 100, each step 2^-24 of that.
  expect_close_bf16(actual, expected, 100 * 0x1p-23f * static_cast<float>(taps));
  EXPECT_EQ(a.rows, b.rows);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Conv1dShapes,
                         testing::Values(ConvCase{1, 4}, ConvCase{15, 4}, ConvCase{16, 4},
                                         ConvCase{63, 4}, ConvCase{64, 4}, ConvCase{65, 4},
                                         ConvCase{264, 4}, ConvCase{40, 2}, ConvCase{40, 1},
                                         ConvCase{33, 7}));

}  // namespace
}  // namespace quern::smoke
