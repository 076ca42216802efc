#include "model_smoke/layers/rope.h"

#include "tests/model_smoke/layer_support.h"

namespace quern::smoke {
namespace {

/// Pairing made visible (bug log D06): position 1, one-hot vectors; element j's partner is j + R/2.
TEST(Rope, HalfSplitPairing) {
  ExecFixture f(LayerImpl::kScalar);
  constexpr int64_t kDim = 8, kRotary = 4;
  RopeTable table(kRotary, 10000.0);
  table.fill(1, 1, DType::kF32);
  const double angle[2] = {1.0, 0.01};  // 1 * 10000^(-2j/4)
  for (int64_t hot = 0; hot < kDim; ++hot) {
    Tensor x(DType::kF32, 1, kDim);
    x.zero();
    x.row<float>(0)[hot] = 1.0f;
    rope_half_split(f.exec, table, heads_of(x.mutable_view(), 1, kDim, kDim));
    for (int64_t i = 0; i < kDim; ++i) {
      double expected = i == hot ? 1.0 : 0.0;
      if (hot < kRotary) {
        const int64_t j = hot % 2;
        if (i == hot) expected = std::cos(angle[j]);
        if (hot < 2 && i == hot + 2) expected = std::sin(angle[j]);
        if (hot >= 2 && i == hot - 2) expected = -std::sin(angle[j]);
      }
      EXPECT_NEAR(x.row<float>(0)[i], expected, 1e-7) << "hot " << hot << " element " << i;
    }
  }
}

TEST(Rope, TablesAreRoundedWhereActivationsAre) {
  RopeTable table(2, 10000.0);
  table.fill(3, 1, DType::kBF16);
  EXPECT_EQ(table.cos_row(0)[0], bfloat16::from_float(std::cos(3.0f)).to_float());
  table.fill(3, 1, DType::kF32);
  EXPECT_NEAR(table.cos_row(0)[0], std::cos(3.0), 1e-7);
}

TEST(Rope, PositionsContinue) {
  RopeTable all(6, 1e7), later(6, 1e7);
  all.fill(0, 700, DType::kF32);
  later.fill(512, 188, DType::kF32);
  for (int64_t j = 0; j < 3; ++j) EXPECT_EQ(all.sin_row(600)[j], later.sin_row(88)[j]);
}

struct RopeCase {
  int64_t dim, rotary;
};
class RopeShapes : public testing::TestWithParam<RopeCase> {};

/// Partial rotation crossed with every head count (bug log D04); what lies beyond keeps its bits.
TEST_P(RopeShapes, HighwayAgreesAndLeavesTheRestAlone) {
  const auto [dim, rotary] = GetParam();
  ExecFixture twin(LayerImpl::kScalar), simd(LayerImpl::kSimd, 2);
  RopeTable table(rotary, 1e5);
  table.fill(37, 4, DType::kBF16);
  for (int64_t heads = 1; heads <= 9; ++heads) {
    const int64_t stride = dim + 3;
    const Tensor before = random_tensor(DType::kBF16, 4, heads * stride, 11);
    Tensor expected = random_tensor(DType::kBF16, 4, heads * stride, 11);
    Tensor actual = random_tensor(DType::kBF16, 4, heads * stride, 11);
    rope_half_split(twin.exec, table, heads_of(expected.mutable_view(), heads, dim, stride));
    rope_half_split(simd.exec, table, heads_of(actual.mutable_view(), heads, dim, stride));
    // Two products of numbers below 6, so f32 differences below 12 * 2^-23.
    expect_close_bf16(actual, expected, 12 * 0x1p-23f);
    for (int64_t t = 0; t < 4; ++t) {
      for (int64_t i = 0; i < heads * stride; ++i) {
        if (i % stride < rotary) continue;
        ASSERT_EQ(actual.row<bfloat16>(t)[i].bits, before.row<bfloat16>(t)[i].bits);
        ASSERT_EQ(expected.row<bfloat16>(t)[i].bits, before.row<bfloat16>(t)[i].bits);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, RopeShapes,
                         testing::Values(RopeCase{40, 10}, RopeCase{64, 16}, RopeCase{128, 64},
                                         RopeCase{256, 64}, RopeCase{32, 32}, RopeCase{10, 2}));

}  // namespace
}  // namespace quern::smoke
