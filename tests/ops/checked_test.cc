#include "ops/checked.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "tests/support/rng.h"

namespace quern {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

bool fits(__int128 v) {
  return v >= kMin && v <= kMax;
}

TEST(CheckedSize, FollowsTheMathematics) {
  const int64_t edges[] = {0,
                           1,
                           2,
                           -1,
                           7,
                           int64_t{1} << 31,
                           kMax,
                           kMax - 1,
                           kMin,
                           kMin + 1,
                           kMax / 2,
                           int64_t{1} << 32,
                           kMax / 16,
                           -kMax / 16,
                           3'037'000'499,
                           3'037'000'500};
  for (const int64_t x : edges) {
    for (const int64_t y : edges) {
      const __int128 sum = static_cast<__int128>(x) + y;
      const __int128 difference = static_cast<__int128>(x) - y;
      const __int128 product = static_cast<__int128>(x) * y;
      EXPECT_EQ((CheckedSize(x) + y).ok(), fits(sum)) << x << " + " << y;
      EXPECT_EQ((CheckedSize(x) - y).ok(), fits(difference)) << x << " - " << y;
      EXPECT_EQ((CheckedSize(x) * y).ok(), fits(product)) << x << " * " << y;
      // The low 64 bits where the result does not fit: never undefined behaviour.
      EXPECT_EQ((CheckedSize(x) + y).value(), static_cast<int64_t>(sum));
      EXPECT_EQ((CheckedSize(x) - y).value(), static_cast<int64_t>(difference));
      EXPECT_EQ((CheckedSize(x) * y).value(), static_cast<int64_t>(product));
    }
  }
}

TEST(CheckedSize, AnOverflowIsNeverForgotten) {
  const CheckedSize over = CheckedSize(kMax) + 1;
  EXPECT_FALSE(over.ok());
  EXPECT_FALSE((over * 0).ok());
  EXPECT_FALSE((CheckedSize(1) + over).ok());
  EXPECT_FALSE((over - over).ok());
  EXPECT_FALSE(over.round_up(64).ok());
  EXPECT_FALSE(over.get().has_value());
  EXPECT_FALSE(over.at_most(kMax));
}

TEST(CheckedSize, Limits) {
  EXPECT_TRUE(CheckedSize(0).at_most(0));
  EXPECT_TRUE(CheckedSize(5).at_most(5));
  EXPECT_FALSE(CheckedSize(6).at_most(5));
  EXPECT_FALSE(CheckedSize(-1).at_most(5));
  EXPECT_EQ(CheckedSize(5).get().value(), 5);
}

TEST(CheckedSize, RoundUp) {
  EXPECT_EQ(CheckedSize(0).round_up(16).value(), 0);
  EXPECT_EQ(CheckedSize(1).round_up(16).value(), 16);
  EXPECT_EQ(CheckedSize(16).round_up(16).value(), 16);
  EXPECT_EQ(CheckedSize(17).round_up(16).value(), 32);
  EXPECT_EQ(CheckedSize(kMax).round_up(1).value(), kMax);
  EXPECT_FALSE(CheckedSize(kMax).round_up(2).ok());
  EXPECT_TRUE(CheckedSize(kMax - 1).round_up(2).ok());
  EXPECT_FALSE(CheckedSize(-1).round_up(2).ok());
  EXPECT_FALSE(CheckedSize(1).round_up(0).ok());
  EXPECT_FALSE(CheckedSize(1).round_up(-4).ok());
}

TEST(CheckedSize, IsUsableAtCompileTime) {
  static_assert((CheckedSize(6) * 7).value() == 42);
  static_assert(!(CheckedSize(kMax) * 2).ok());
}

TEST(Checked, FunctionsLeaveTheOutputAloneOnOverflow) {
  int64_t out = 5;
  EXPECT_FALSE(checked_mul(kMax, 2, &out));
  EXPECT_FALSE(checked_add(kMax, 1, &out));
  EXPECT_EQ(out, 5);
  EXPECT_TRUE(checked_mul(6, 7, &out));
  EXPECT_EQ(out, 42);
  EXPECT_TRUE(checked_add(out, -43, &out));
  EXPECT_EQ(out, -1);
}

TEST(Checked, CeilDiv) {
  EXPECT_EQ(ceil_div(0, 3), 0);
  EXPECT_EQ(ceil_div(1, 3), 1);
  EXPECT_EQ(ceil_div(3, 3), 1);
  EXPECT_EQ(ceil_div(4, 3), 2);
  EXPECT_EQ(ceil_div(kMax, 1), kMax);
  EXPECT_EQ(ceil_div(kMax, 2), int64_t{1} << 62);
  EXPECT_EQ(ceil_div(kMax, kMax), 1);
}

TEST(CheckedSize, RandomChains) {
  for (uint64_t seed = 1; seed <= 2'000; ++seed) {
    test::Rng rng(seed);
    const int64_t rows = rng.in(0, int64_t{1} << rng.in(1, 62));
    const int64_t stride = rng.in(0, int64_t{1} << rng.in(1, 62));
    const int64_t extra = rng.in(0, kMax);
    const __int128 product = static_cast<__int128>(rows) * stride;
    const bool expected = fits(product) && fits(product + extra);
    const CheckedSize got = CheckedSize(rows) * stride + extra;
    ASSERT_EQ(got.ok(), expected) << "seed " << seed;
    if (!expected) continue;
    ASSERT_EQ(got.value(), static_cast<int64_t>(product + extra)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace quern
