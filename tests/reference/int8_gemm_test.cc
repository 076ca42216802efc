#include "reference/int8_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "reference/numeric.h"

namespace quern::reference {
namespace {

struct Case {
  Int8GemmDesc desc;
  std::vector<int8_t> a, w, u;
  std::vector<float> a_f32, a_scale, w_scale, u_scale, bias, residual, c;
  int64_t m = 1;

  Int8GemmArgs args() {
    const int64_t n = desc.n, k = desc.k;
    c.assign(static_cast<size_t>(m * n), -1.0f);
    desc.c = DType::kF32;
    Int8GemmArgs r;
    r.a = a_f32.empty() ? matrix_view(a.data(), m, k) : matrix_view(a_f32.data(), m, k);
    r.a_scale = vector_view(a_scale.data(), m);
    r.weights = {matrix_view(w.data(), n, k), vector_view(w_scale.data(), n)};
    r.up_weights = {matrix_view(u.data(), n, k), vector_view(u_scale.data(), n)};
    r.c = mutable_matrix_view(c.data(), m, n);
    r.bias = vector_view(bias.data(), static_cast<int64_t>(bias.size()));
    r.residual = matrix_view(residual.data(), m, n);
    return r;
  }
  std::vector<float> run() {
    const Int8GemmArgs r = args();
    EXPECT_TRUE(int8_gemm(desc, r).ok());
    return c;
  }
};

Case s8_case(int64_t n, int64_t k) {
  Case c;
  c.desc.n = n;
  c.desc.k = k;
  c.desc.activations = Int8Activations::kS8;
  c.desc.a = DType::kS8;
  c.a_scale = {1.0f};
  c.w_scale.assign(static_cast<size_t>(n), 1.0f);
  c.u_scale = c.w_scale;
  return c;
}

TEST(Int8Gemm, MultipliesRowsByRowsOfTheWeights) {
  Case c = s8_case(2, 3);
  c.m = 2;
  c.a = {1, 2, 3, -4, 5, -6};
  c.w = {7, -8, 9, 10, 11, -12};
  c.a_scale = {1.0f, 0.5f};
  c.w_scale = {1.0f, 2.0f};
  // 7-16+27 = 18, 10+22-36 = -4; -28-40-54 = -122, -40+55+72 = 87
  EXPECT_EQ(c.run(), (std::vector<float>{18, -8, -61, 87}));
}

TEST(Int8Gemm, LargestSumsAreExact) {  // bug_log T02, I02
  Case c = s8_case(1, 64);
  c.a.assign(64, -128);
  c.w.assign(64, -128);
  EXPECT_EQ(c.run()[0], 1048576.0f);
  c.w.assign(64, 127);
  EXPECT_EQ(c.run()[0], -1040384.0f);
  c = s8_case(1, 4);
  c.a.assign(4, 127);
  c.w.assign(4, 127);
  EXPECT_EQ(c.run()[0], 64516.0f);
}

TEST(Int8Gemm, SumsBeyond31BitsAreExact) {
  Case c = s8_case(1, 131072);
  c.a.assign(131072, -128);
  c.w.assign(131072, -128);
  EXPECT_EQ(c.run()[0], 2147483648.0f);  // 2^17 * 2^14
}

TEST(Int8Gemm, EpilogueStepsAreF32InTheFixedOrder) {
  Case c = s8_case(1, 1);
  c.desc.epilogue.bias = true;
  c.desc.epilogue.residual = true;
  c.a = {1};
  c.w = {1};
  c.bias = {0x1p24f};
  c.residual = {-0x1p24f};
  // (1 + 2^24) rounds to 2^24, minus 2^24 is 0. With the residual first it would be 1.
  EXPECT_EQ(c.run()[0], 0.0f);
  // s_row * s_col is one product: 2^-100 * 2^-60 underflows to 0 before the sum sees it.
  c = s8_case(1, 1);
  c.a = {1};
  c.w = {1};
  c.a_scale = {0x1p-100f};
  c.w_scale = {0x1p-60f};
  EXPECT_EQ(c.run()[0], 0.0f);
  c.a_scale = {0x1p100f};
  EXPECT_EQ(c.run()[0], 0x1p40f);
}

TEST(Int8Gemm, TheSumIsRoundedToF32Once) {
  Case c = s8_case(1, 1042);
  c.a.assign(1042, 127);
  c.w.assign(1042, 127);  // 1042 * 16129 = 16806418, above 2^24: even numbers are kept
  EXPECT_EQ(c.run()[0], 16806418.0f);
  c.w[0] = 126;  // 16806291 is half way between 16806290 and 16806292: to even mantissa
  EXPECT_EQ(c.run()[0], 16806292.0f);
}

TEST(Int8Gemm, SiluMulUsesGateThenUpWithTheirOwnScales) {  // bug_log T12
  Case c = s8_case(1, 1);
  c.desc.epilogue.activation = Activation::kSiluMul;
  c.desc.epilogue.bias = true;
  c.a = {2};
  c.w = {3};
  c.u = {5};
  c.w_scale = {0.5f};
  c.u_scale = {0.25f};
  c.bias = {-2.0f, 1.5f};
  // gate 2*3*0.5 - 2 = 1, up 2*5*0.25 + 1.5 = 4: 4 * silu(1)
  EXPECT_NEAR(c.run()[0], 2.9242343f, 1e-6f);
  const Exact e = int8_gemm_exact(c.desc, c.args());
  EXPECT_NEAR(e.at(0, 0).value, 4 * 0.7310585786300049, 1e-15);
  EXPECT_GT(e.at(0, 0).bound, 0);
  EXPECT_LE(e.at(0, 0).bound, 2.93 * 4 * 0x1p-23 + 0x1p-100);
}

TEST(Int8Gemm, DynamicQuantizationFeedsTheIntegerSum) {
  Case c = s8_case(1, 3);
  c.desc.activations = Int8Activations::kDynamicS8;
  c.desc.a = DType::kF32;
  c.a_f32 = {254, 3, -1};  // q = 127, 2, 0; scale 2
  c.w = {1, 10, 100};
  EXPECT_EQ(c.run()[0], 294.0f);
}

TEST(Int8Gemm, ActivationsAsTheyAre) {
  Case c = s8_case(1, 3);
  c.desc.activations = Int8Activations::kBF16;
  c.desc.a = DType::kBF16;
  const std::vector<uint16_t> a = {bf16_from_double(0.5), bf16_from_double(-3), 0x0001};
  c.w = {-128, 127, 127};
  c.w_scale = {0.5f};
  Int8GemmArgs args = c.args();
  args.a = {a.data(), DType::kBF16, 1, 3, 3};
  ASSERT_TRUE(int8_gemm(c.desc, args).ok());
  EXPECT_EQ(c.c[0], -222.5f);  // (-64 - 381 + 0) / 2: the subnormal counts as zero
  const Exact e = int8_gemm_exact(c.desc, args);
  // 2 K u sum|a w| |s| is 2 * 3 * 2^-24 * 445 * 0.5; the product's rounding adds 2^-24 * 222.5.
  EXPECT_GE(e.at(0, 0).bound, 1335 * 0x1p-24);
  EXPECT_LE(e.at(0, 0).bound, 1558 * 0x1p-24);
}

TEST(Int8Gemm, EmptyDepthIsZeroPlusEpilogue) {
  Case c = s8_case(2, 0);
  c.desc.epilogue.bias = true;
  c.bias = {3.0f, -4.0f};
  EXPECT_EQ(c.run(), (std::vector<float>{3, -4}));
}

TEST(Int8Gemm, ANanScaleStaysInItsRowOrColumn) {
  Case c = s8_case(2, 1);
  c.m = 2;
  c.a = {1, 1};
  c.w = {1, 1};
  c.a_scale = {std::nanf(""), 1.0f};
  std::vector<float> r = c.run();
  EXPECT_TRUE(std::isnan(r[0]) && std::isnan(r[1]));
  EXPECT_EQ(r[2], 1.0f);
  EXPECT_EQ(r[3], 1.0f);
}

TEST(Int8Gemm, RefusesShapesThatDoNotFit) {
  Case c = s8_case(1, 2);
  c.a = {1, 2};
  c.w = {1, 2};
  Int8GemmArgs args = c.args();
  args.weights.scale.size = 3;
  EXPECT_EQ(int8_gemm(c.desc, args).code(), StatusCode::kInvalidArgument);
  args = c.args();
  args.c.cols = 2;
  EXPECT_EQ(int8_gemm(c.desc, args).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quern::reference
