// silu(gate) * up over the whole range of f32, one element each: the GEMM is 1 x 1 with exact sums.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/ops/gemm_fixture.h"

namespace quern::test {
namespace {

class SiluMulTest : public IsaTest {
 protected:
  /// f32 outputs for gates g[i] and ups u[i]: K = 0 and the numbers in the bias, which is added to
  /// an exact zero.
  std::vector<double> run(const std::vector<float>& g, const std::vector<float>& u) {
    const int64_t n = static_cast<int64_t>(g.size());
    GemmCase c = make_case(kGemmKinds[0], 1, n, 0);
    c.problem.c = DType::kF32;
    c.problem.epilogue.bias = true;
    c.problem.epilogue.activation = Activation::kSiluMul;
    GemmData data(c);
    for (int64_t j = 0; j < n; ++j) {
      data.bias.set(0, j, g[static_cast<size_t>(j)]);
      data.bias.set(0, n + j, u[static_cast<size_t>(j)]);
    }
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    EXPECT_TRUE(op.ok()) << op.status().message();
    if (!op.ok()) return {};
    EXPECT_TRUE(op->pack(data).ok());
    EXPECT_TRUE(op->run(args_of(c, data)).ok());
    std::vector<double> out;
    for (int64_t j = 0; j < n; ++j) out.push_back(data.c.get(0, j));
    return out;
  }
};

TEST_P(SiluMulTest, WithinTheBoundOverTheWholeRange) {
  // 132,000 gates: every exponent from 2^-60 to 2^8, both signs, 960 significands each.
  Rng rng(3);
  std::vector<float> g, u;
  for (int e = -60; e <= 8; ++e) {
    for (int i = 0; i < 1920; ++i) {
      const float x = std::ldexp(1.0f + 0.5f * (rng.unit() + 1.0f), e);
      g.push_back(i % 2 ? x : -x);
      u.push_back(i % 3 ? 1.0f : rng.unit() * 100);
    }
  }
  const std::vector<double> got = run(g, u);
  ASSERT_EQ(got.size(), g.size());
  double worst = 0;
  for (size_t i = 0; i < g.size(); ++i) {
    const reference::Bounded x = reference::silu_times({g[i], 0}, {u[i], 0});
    ASSERT_TRUE(reference::accepts(x, DType::kF32, got[i]))
        << "silu(" << g[i] << ") * " << u[i] << " is " << got[i] << ", expected " << x.value;
    if (std::fabs(x.value) > 0x1p-100) {
      worst = std::max(worst, std::fabs(got[i] / x.value - 1) * 0x1p23);
    }
  }
  RecordProperty("worst_relative_error_in_2_to_minus_23", std::to_string(worst));
}

TEST_P(SiluMulTest, KnownValues) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<double> got =
      run({0.0f, -0.0f, 100.0f, 1000.0f, -1000.0f, inf, nan, 1.0f, 0x1p-140f, 3e38f},
          {1, 1, 2, 3, 4, 1, 1, nan, 2, 1});
  ASSERT_EQ(got.size(), 10u);
  EXPECT_EQ(got[0], 0.0);
  EXPECT_EQ(got[1], 0.0);
  EXPECT_EQ(got[2], 200.0);
  EXPECT_EQ(got[3], 3000.0);
  EXPECT_NEAR(got[4], 0.0, 0x1p-119);
  EXPECT_EQ(got[5], std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(got[6]));
  EXPECT_TRUE(std::isnan(got[7]));
  EXPECT_EQ(got[8], 0x1p-140);  // silu(x) is x / 2 near zero, times 2: exact also among subnormals
  EXPECT_EQ(got[9], static_cast<double>(3e38f));
}

INSTANTIATE_TEST_SUITE_P(Ops, SiluMulTest, ::testing::ValuesIn(isas_to_test()), isa_name);

}  // namespace
}  // namespace quern::test
