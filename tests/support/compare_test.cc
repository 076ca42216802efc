#include "tests/support/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/test_matrix.h"

namespace quern::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(UlpDistance, CountsRepresentableNumbers) {
  EXPECT_EQ(ulp_distance(DType::kF32, 0x3f800000, 0x3f800000), 0u);
  EXPECT_EQ(ulp_distance(DType::kF32, 0x3f800000, 0x3f800001), 1u);
  EXPECT_EQ(ulp_distance(DType::kBF16, 0x3f80, 0x3f7f), 1u);
  EXPECT_EQ(ulp_distance(DType::kF32, 0x00000000, 0x80000000), 1u);  // +0 and -0
  EXPECT_EQ(ulp_distance(DType::kF32, 0x00000001, 0x80000001), 3u);
  EXPECT_EQ(ulp_distance(DType::kF32, 0x7fc00000, 0xffc00001), 0u);  // NaN and NaN
  EXPECT_EQ(ulp_distance(DType::kF32, 0x7fc00000, 0x3f800000), UINT32_MAX);
  EXPECT_EQ(ulp_distance(DType::kS8, 0x80, 0x7f), 255u);
}

TEST(SameBits, SeesOneUlpInOneElement) {
  for (const DType t : {DType::kF32, DType::kBF16}) {
    TestMatrix x(t, 3, 5, 2), y(t, 3, 5, 7);
    x.set_all(1.0);
    y.set_all(1.0);
    EXPECT_TRUE(same_bits(x.view(), y.view(), "p"));
    x.set_bits(2, 4, x.bits(2, 4) + 1);
    const auto result = same_bits(x.view(), y.view(), "int8_gemm/m:3/n:5");
    EXPECT_FALSE(result);
    const std::string text = result.message();
    EXPECT_NE(text.find("1 of 15 elements differ, max ulp 1"), std::string::npos) << text;
    EXPECT_NE(text.find("[2, 4]"), std::string::npos) << text;
    EXPECT_NE(text.find("int8_gemm/m:3/n:5"), std::string::npos) << text;
  }
}

TEST(SameBits, NanEqualsNanOnly) {
  TestMatrix x(DType::kF32, 1, 2), y(DType::kF32, 1, 2);
  x.set_all(kNaN);
  y.set_all(kNaN);
  y.set_bits(0, 1, 0xffc12345);
  EXPECT_TRUE(same_bits(x.view(), y.view(), ""));
  y.set(0, 1, 1.0);
  EXPECT_FALSE(same_bits(x.view(), y.view(), ""));
}

TEST(SameBits, ShapeAndTypeMustAgree) {
  TestMatrix x(DType::kF32, 1, 2), y(DType::kF32, 2, 1), z(DType::kBF16, 1, 2);
  EXPECT_FALSE(same_bits(x.view(), y.view(), ""));
  EXPECT_FALSE(same_bits(x.view(), z.view(), ""));
}

reference::Exact one(double value, double bound) {
  return {1, 1, {{value, bound}}};
}

bool allowed(DType t, double got, double value, double bound) {
  TestMatrix x(t, 1, 1);
  x.set(0, 0, got);
  return static_cast<bool>(within(x.view(), one(value, bound), "p"));
}

TEST(Within, ZeroBoundMeansTheSameBits) {
  EXPECT_TRUE(allowed(DType::kF32, 1.0, 1.0, 0));
  EXPECT_FALSE(allowed(DType::kF32, 1.0 + 0x1p-23, 1.0, 0));
  EXPECT_FALSE(allowed(DType::kF32, -0.0, 0.0, 0));
  EXPECT_TRUE(allowed(DType::kBF16, 1.0, 1.0 + 0x1p-8, 0));            // tie to even
  EXPECT_FALSE(allowed(DType::kBF16, 1.0 + 0x1p-7, 1.0 + 0x1p-8, 0));  // the other neighbour
}

TEST(Within, AcceptsWhatRoundsFromInsideTheBound) {
  // 1 + 2^-8 +- 2^-20 may round to either neighbour; nothing else may come out.
  EXPECT_TRUE(allowed(DType::kBF16, 1.0, 1.0 + 0x1p-8, 0x1p-20));
  EXPECT_TRUE(allowed(DType::kBF16, 1.0 + 0x1p-7, 1.0 + 0x1p-8, 0x1p-20));
  EXPECT_FALSE(allowed(DType::kBF16, 1.0 - 0x1p-8, 1.0 + 0x1p-8, 0x1p-20));
  EXPECT_FALSE(allowed(DType::kF32, 1.0 + 0x1p-7, 1.0 + 0x1p-8, 0x1p-20));
  EXPECT_TRUE(allowed(DType::kF32, kInf, 3.4e38, 1e37));
  EXPECT_FALSE(allowed(DType::kF32, kInf, 3.4e38, 1e30));
}

TEST(Within, NonFiniteValuesMustArrive) {
  EXPECT_TRUE(allowed(DType::kF32, kNaN, kNaN, 1));
  EXPECT_FALSE(allowed(DType::kF32, 1.0, kNaN, 1));
  EXPECT_FALSE(allowed(DType::kF32, kNaN, 1.0, 1));
  EXPECT_TRUE(allowed(DType::kBF16, kInf, kInf, 1));
  EXPECT_FALSE(allowed(DType::kBF16, -kInf, kInf, 1));
}

TEST(Within, Bf16ResultsBelowTheNormalRangeAreZero) {
  EXPECT_TRUE(allowed(DType::kBF16, 0.0, 0x1p-127, 0));
  EXPECT_FALSE(allowed(DType::kBF16, 0x1p-127, 0x1p-127, 0));
  EXPECT_FALSE(allowed(DType::kF32, 0.0, 0x1p-127, 0));
  EXPECT_TRUE(allowed(DType::kF32, 0x1p-127, 0x1p-127, 0));
}

}  // namespace
}  // namespace quern::test
