#include "reference/exact.h"

#include <gtest/gtest.h>

#include <limits>

namespace quern::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

bool allows(Bounded gate, double up, double actual) {
  return accepts(silu_times(gate, {up, 0}), DType::kF32, actual);
}

// silu(-1000) is about -1e-431: 0 or the smallest of its sign, whatever a kernel's exp gives.
TEST(SiluTimes, AnInfiniteFactorOfWhatMayBeZero) {
  for (const double actual : {-kInf, kInf, kNan}) {
    EXPECT_TRUE(allows({-1000, 0}, kInf, actual)) << actual;
    EXPECT_TRUE(allows({1e-9, 1e-6}, kInf, actual)) << "of either sign: " << actual;
    EXPECT_TRUE(allows({0x1p-149, 0}, kInf, actual)) << "half of it is rounded: " << actual;
  }
}

TEST(SiluTimes, AnInfiniteFactorOfWhatIsNot) {
  EXPECT_TRUE(allows({3, 1e-6}, kInf, kInf));
  EXPECT_TRUE(allows({-3, 1e-6}, kInf, -kInf));
  EXPECT_FALSE(allows({3, 1e-6}, kInf, -kInf));
  EXPECT_FALSE(allows({3, 1e-6}, kInf, kNan));
  EXPECT_TRUE(allows({0, 0}, kInf, kNan)) << "0 times infinity";
  EXPECT_FALSE(allows({0, 0}, kInf, 0));
  EXPECT_FALSE(allows({kNan, 0}, kInf, kInf)) << "NaN stays NaN";
  EXPECT_TRUE(allows({-3, 1e-6}, 0, -0.0));
}

}  // namespace
}  // namespace quern::reference
