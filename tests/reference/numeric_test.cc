#include "reference/numeric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace quern::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Numeric, DecodesBf16) {
  EXPECT_EQ(bf16_to_double(0x0000), 0.0);
  EXPECT_TRUE(std::signbit(bf16_to_double(0x8000)));
  EXPECT_EQ(bf16_to_double(0x3f80), 1.0);
  EXPECT_EQ(bf16_to_double(0xc000), -2.0);
  EXPECT_EQ(bf16_to_double(0x3f81), 1.0078125);
  EXPECT_EQ(bf16_to_double(0x0001), 0x1p-133);
  EXPECT_EQ(bf16_to_double(0x007f), 127 * 0x1p-133);
  EXPECT_EQ(bf16_to_double(0x0080), 0x1p-126);
  EXPECT_EQ(bf16_to_double(0x7f7f), 255 * 0x1p120);
  EXPECT_EQ(bf16_to_double(0x7f80), kInf);
  EXPECT_EQ(bf16_to_double(0xff80), -kInf);
  EXPECT_TRUE(std::isnan(bf16_to_double(0x7f81)));
  EXPECT_TRUE(std::isnan(bf16_to_double(0xffff)));
}

TEST(Numeric, DecodesF16) {
  EXPECT_EQ(f16_to_double(0x3c00), 1.0);
  EXPECT_EQ(f16_to_double(0xc400), -4.0);
  EXPECT_EQ(f16_to_double(0x7bff), 65504.0);
  EXPECT_EQ(f16_to_double(0x0001), 0x1p-24);
  EXPECT_EQ(f16_to_double(0x03ff), 1023 * 0x1p-24);
  EXPECT_EQ(f16_to_double(0x0400), 0x1p-14);
  EXPECT_EQ(f16_to_double(0x3555), 1365 * 0x1p-12);  // the f16 next to 1/3
  EXPECT_EQ(f16_to_double(0xfc00), -kInf);
  EXPECT_TRUE(std::isnan(f16_to_double(0x7c01)));
}

TEST(Numeric, RoundsToNearestEven) {
  EXPECT_EQ(bf16_from_double(1.0), 0x3f80);
  EXPECT_EQ(bf16_from_double(1.0 + 0x1p-8), 0x3f80);      // half way: down to even
  EXPECT_EQ(bf16_from_double(1.0 + 3 * 0x1p-8), 0x3f82);  // half way: up to even
  EXPECT_EQ(bf16_from_double(1.0 + 0x1p-8 + 0x1p-40), 0x3f81);
  EXPECT_EQ(bf16_from_double(-1.0 - 0x1p-8), 0xbf80);
  EXPECT_EQ(bf16_from_double(2.0 - 0x1p-20), 0x4000);  // carries into the exponent
  EXPECT_EQ(f16_from_double(2049.0), 0x6800);          // 2048, even
  EXPECT_EQ(f16_from_double(2051.0), 0x6802);          // 2052
}

TEST(Numeric, RoundsAtTheEndsOfTheRange) {
  EXPECT_EQ(bf16_from_double(255.4 * 0x1p120), 0x7f7f);
  EXPECT_EQ(bf16_from_double(255.5 * 0x1p120), 0x7f80);  // half way above the largest: infinity
  EXPECT_EQ(bf16_from_double(-1e300), 0xff80);
  EXPECT_EQ(f16_from_double(65519.9), 0x7bff);
  EXPECT_EQ(f16_from_double(65520.0), 0x7c00);
  EXPECT_EQ(bf16_from_double(0x1p-133), 0x0001);
  EXPECT_EQ(bf16_from_double(0x1p-134), 0x0000);  // half the smallest: to even
  EXPECT_EQ(bf16_from_double(1.5 * 0x1p-133), 0x0002);
  EXPECT_EQ(bf16_from_double(-0x1p-140), 0x8000);
  EXPECT_EQ(bf16_from_double(std::nan("")), 0x7fc0);
}

TEST(Numeric, EveryCodeSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t code = static_cast<uint16_t>(bits);
    const double bf16 = bf16_to_double(code);
    const double f16 = f16_to_double(code);
    ASSERT_EQ(std::isnan(bf16) ? code : bf16_from_double(bf16), code);
    ASSERT_EQ(std::isnan(f16) ? code : f16_from_double(f16), code);
  }
}

TEST(Numeric, SubnormalOperandsOfABf16DotProductAreZero) {
  EXPECT_EQ(bf16_operand(0x007f), 0.0);
  EXPECT_TRUE(std::signbit(bf16_operand(0x8001)));
  EXPECT_EQ(bf16_operand(0x0080), 0x1p-126);
}

TEST(Numeric, SiluOfKnownValues) {
  EXPECT_EQ(silu(0.0), 0.0);
  EXPECT_NEAR(silu(1.0), 0.7310585786300049, 1e-15);    // 1 / (1 + 1/e)
  EXPECT_NEAR(silu(-1.0), -0.2689414213699951, 1e-15);  // the difference of the two is 1
  EXPECT_NEAR(silu(20.0), 19.99999995877693, 1e-13);
  EXPECT_EQ(silu(kInf), kInf);
  EXPECT_EQ(silu(-kInf), 0.0);
}

}  // namespace
}  // namespace quern::reference
