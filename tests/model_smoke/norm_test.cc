#include "model_smoke/layers/norm.h"

#include "tests/model_smoke/layer_support.h"

namespace quern::smoke {
namespace {

Tensor f32_row(std::initializer_list<float> values) {
  Tensor t(DType::kF32, 1, static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), t.row<float>(0));
  return t;
}

TEST(RmsNorm, WeightsAreOffsetsFromOne) {
  ExecFixture f(LayerImpl::kScalar);
  const Tensor x = f32_row({3, 4});  // mean square 12.5, 1 / rms = 0.28284271
  Tensor y(DType::kF32, 1, 2);
  const std::vector<float> zero = {0, 0}, w = {1, -0.5f};
  rms_norm(f.exec, x.view(), view_of(zero), 0.0f, y.mutable_view());
  EXPECT_NEAR(y.row<float>(0)[0], 0.84852814f, 1e-7f);  // plain normalisation (bug log D03)
  EXPECT_NEAR(y.row<float>(0)[1], 1.13137085f, 1e-7f);
  rms_norm(f.exec, x.view(), view_of(w), 0.0f, y.mutable_view());
  EXPECT_NEAR(y.row<float>(0)[0], 1.69705627f, 2e-7f);
  EXPECT_NEAR(y.row<float>(0)[1], 0.56568542f, 1e-7f);
}

TEST(RmsNorm, EpsilonIsAddedToTheMean) {
  ExecFixture f(LayerImpl::kScalar);
  const Tensor x = f32_row({1, 1, 1, 1});
  Tensor y(DType::kF32, 1, 4);
  const std::vector<float> w(4, 0.0f);
  rms_norm(f.exec, x.view(), view_of(w), 3.0f, y.mutable_view());
  EXPECT_FLOAT_EQ(y.row<float>(0)[2], 0.5f);  // 1 / sqrt(1 + 3)
}

TEST(GatedRmsNorm, WeightIsPlainAndGateComesAfter) {
  ExecFixture f(LayerImpl::kScalar);
  const Tensor x = f32_row({3, 4}), z = f32_row({0, 2});
  Tensor y(DType::kF32, 1, 2);
  const auto run = [&](const std::vector<float>& w) {
    gated_rms_norm(f.exec, heads_of(x.view(), 1, 2, 2), heads_of(z.view(), 1, 2, 2), view_of(w),
                   0.0f, heads_of(y.mutable_view(), 1, 2, 2));
  };
  run({0, 0});  // a plain weight of zero gives zeros (bug log D03)
  EXPECT_EQ(y.row<float>(0)[0], 0.0f);
  EXPECT_EQ(y.row<float>(0)[1], 0.0f);
  run({5, 2});
  EXPECT_EQ(y.row<float>(0)[0], 0.0f);  // silu(0) = 0
  // 4 / sqrt(12.5) * 2 * silu(2) = 1.13137085 * 2 * 1.76159416
  EXPECT_NEAR(y.row<float>(0)[1], 3.98603229f, 2e-6f);
}

TEST(GatedRmsNorm, EachHeadIsNormedAlone) {
  ExecFixture f(LayerImpl::kScalar);
  const Tensor x = f32_row({1, 1, 100, 100}), z = f32_row({1, 1, 1, 1});
  Tensor y(DType::kF32, 1, 4);
  gated_rms_norm(f.exec, heads_of(x.view(), 2, 2, 2), heads_of(z.view(), 2, 2, 2),
                 view_of(std::vector<float>{1, 1}), 0.0f, heads_of(y.mutable_view(), 2, 2, 2));
  EXPECT_NEAR(y.row<float>(0)[0], y.row<float>(0)[2], 1e-6f);
}

TEST(SiluMul, Literals) {
  ExecFixture f(LayerImpl::kScalar);
  const Tensor gate = f32_row({0, 1, -1, 200, -200}), up = f32_row({5, 2, 2, 1, 1});
  Tensor y(DType::kF32, 1, 5);
  silu_mul(f.exec, gate.view(), up.view(), y.mutable_view());
  const float* out = y.row<float>(0);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_NEAR(out[1], 1.46211716f, 1e-6f);
  EXPECT_NEAR(out[2], -0.53788284f, 1e-6f);
  EXPECT_EQ(out[3], 200.0f);
  EXPECT_EQ(out[4], 0.0f);
}

class NormWidth : public testing::TestWithParam<int64_t> {};

TEST_P(NormWidth, HighwayAgreesWithTheTwin) {
  const int64_t n = GetParam();
  ExecFixture twin(LayerImpl::kScalar), simd(LayerImpl::kSimd, 2);
  const Tensor x = random_tensor(DType::kBF16, 5, 2 * n, 7);
  const Tensor z = random_tensor(DType::kBF16, 5, 2 * n, 8, 3.0f);
  const std::vector<float> w = random_vector(n, 9);
  Tensor expected(DType::kBF16, 5, 2 * n), actual(DType::kBF16, 5, 2 * n);

  rms_norm(twin.exec, heads_of(x.view(), 2, n, n), view_of(w), 1e-6f,
           heads_of(expected.mutable_view(), 2, n, n));
  rms_norm(simd.exec, heads_of(x.view(), 2, n, n), view_of(w), 1e-6f,
           heads_of(actual.mutable_view(), 2, n, n));
  // No cancellation: relative f32 error below (n + 6) 2^-24, far below half a bf16 ulp.
  expect_close_bf16(actual, expected, 0);

  gated_rms_norm(twin.exec, heads_of(x.view(), 2, n, n), heads_of(z.view(), 2, n, n), view_of(w),
                 1e-6f, heads_of(expected.mutable_view(), 2, n, n));
  gated_rms_norm(simd.exec, heads_of(x.view(), 2, n, n), heads_of(z.view(), 2, n, n), view_of(w),
                 1e-6f, heads_of(actual.mutable_view(), 2, n, n));
  expect_close_bf16(actual, expected, 0, 2);  // the inner rounding may fall the other way too

  silu_mul(twin.exec, x.view(), z.view(), expected.mutable_view());
  silu_mul(simd.exec, x.view(), z.view(), actual.mutable_view());
  expect_close_bf16(actual, expected, 0);
}

INSTANTIATE_TEST_SUITE_P(Widths, NormWidth,
                         testing::Values(1, 2, 7, 15, 16, 17, 31, 32, 33, 40, 64, 96, 127, 256));

TEST(Norm, HighwayKeepsNaNInItsRowAndReachesTheLimits) {
  ExecFixture simd(LayerImpl::kSimd);
  Tensor x = random_tensor(DType::kBF16, 3, 20, 3);
  x.row<bfloat16>(1)[19] = bfloat16::from_float(NAN);
  Tensor y(DType::kBF16, 3, 20);
  const std::vector<float> w(20, 0.0f);
  rms_norm(simd.exec, x.view(), view_of(w), 1e-6f, y.mutable_view());
  for (int64_t c = 0; c < 20; ++c) {
    EXPECT_TRUE(std::isfinite(element(y, 0, c)));
    EXPECT_TRUE(std::isnan(element(y, 1, c)));
    EXPECT_TRUE(std::isfinite(element(y, 2, c)));
  }
  Tensor gate(DType::kBF16, 1, 4), up(DType::kBF16, 1, 4), out(DType::kBF16, 1, 4);
  const float values[4] = {1000.0f, -1000.0f, 3e38f, -3e38f};
  for (int i = 0; i < 4; ++i) {
    gate.row<bfloat16>(0)[i] = bfloat16::from_float(values[i]);
    up.row<bfloat16>(0)[i] = bfloat16::from_float(1.0f);
  }
  silu_mul(simd.exec, gate.view(), up.view(), out.mutable_view());
  EXPECT_EQ(element(out, 0, 0), 1000.0f);
  EXPECT_EQ(element(out, 0, 1), 0.0f);
  EXPECT_EQ(element(out, 0, 2), element(gate, 0, 2));
  EXPECT_EQ(element(out, 0, 3), 0.0f);
}

TEST(Embed, GathersAndWidens) {
  ExecFixture f(LayerImpl::kScalar);
  const Tensor table = random_tensor(DType::kBF16, 7, 5, 1);
  const int64_t ids[3] = {6, 0, 6};
  Tensor same(DType::kBF16, 3, 5), wide(DType::kF32, 3, 5);
  embed(f.exec, table.view(), ids, same.mutable_view());
  embed(f.exec, table.view(), ids, wide.mutable_view());
  for (int64_t c = 0; c < 5; ++c) {
    EXPECT_EQ(element(same, 0, c), element(table, 6, c));
    EXPECT_EQ(element(wide, 1, c), element(table, 0, c));
    EXPECT_EQ(element(wide, 2, c), element(table, 6, c));
  }
}

TEST(AddInPlace, RoundsOnce) {
  ExecFixture f(LayerImpl::kScalar);
  Tensor h(DType::kBF16, 1, 1), x(DType::kBF16, 1, 1);
  h.row<bfloat16>(0)[0] = bfloat16::from_float(1.0f);
  x.row<bfloat16>(0)[0] = bfloat16::from_float(0x1p-8f + 0x1p-15f);  // just above half an ulp of 1
  add_in_place(f.exec, h.mutable_view(), x.view());
  EXPECT_EQ(element(h, 0, 0), 1.0f + 0x1p-7f);
}

}  // namespace
}  // namespace quern::smoke
