#include "bench/check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace quern::bench {
namespace {

TEST(SampleBlocks, SmallProblemsAreCheckedWhole) {
  EXPECT_EQ(sample_blocks(3, 5, 7), (std::vector<Block>{{0, 3, 0, 5}}));
  EXPECT_EQ(sample_blocks(3, 5, 0), (std::vector<Block>{{0, 3, 0, 5}}));
  EXPECT_TRUE(sample_blocks(0, 5, 7).empty());
  EXPECT_TRUE(sample_blocks(3, 0, 7).empty());
}

TEST(SampleBlocks, LargeOnesAtBothEndsAndInside) {
  const std::vector<Block> blocks = sample_blocks(256, 16384, 4096);
  bool first = false, last = false, inside = false;
  int64_t elements = 0;
  for (const Block& b : blocks) {
    ASSERT_GE(b.row, 0);
    ASSERT_GE(b.col, 0);
    ASSERT_LE(b.row + b.rows, 256);
    ASSERT_LE(b.col + b.cols, 16384);
    first = first || (b.row == 0 && b.col == 0);
    last = last || (b.row + b.rows == 256 && b.col + b.cols == 16384);
    inside = inside || (b.row > 0 && b.row < 255 && b.col > 0 && b.col + b.cols < 16384);
    elements += b.rows * b.cols;
  }
  EXPECT_TRUE(first && last && inside);
  EXPECT_LE(elements, 2000);
}

TEST(SampleBlocks, NarrowAndFlatProblemsStayInside) {
  for (const auto& [m, n] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 16384}, {100000, 3}, {2, 33}}) {
    for (const Block& b : sample_blocks(m, n, 65536)) {
      EXPECT_LE(b.row + b.rows, m);
      EXPECT_LE(b.col + b.cols, n);
    }
  }
}

/// An expectation that is the same everywhere.
auto constant(double value, double bound) {
  return [=](const Block& b) {
    reference::Exact exact{b.rows, b.cols, {}};
    exact.element.assign(static_cast<size_t>(b.rows * b.cols), {value, bound});
    return exact;
  };
}

TEST(CheckBlocks, AcceptsExactlyTheBound) {
  std::vector<float> c = {1.0f, 1.25f, 0.75f, 1.0f};
  const MatrixView view = matrix_view(c.data(), 2, 2);
  const CheckResult inside = check_blocks(view, {{0, 2, 0, 2}}, constant(1, 0.25));
  EXPECT_TRUE(inside.ok);
  EXPECT_EQ(inside.compared, 4);
  EXPECT_EQ(inside.total, 4);
  c[2] = std::nextafter(0.75f, 0.0f);
  const CheckResult outside = check_blocks(view, {{0, 2, 0, 2}}, constant(1, 0.25));
  EXPECT_FALSE(outside.ok);
  EXPECT_EQ(outside.detail.rfind("C[1, 0] = 0.7499", 0), 0u) << outside.detail;
}

TEST(CheckBlocks, ZeroBoundMeansEveryBit) {
  std::vector<float> c = {1.0f, 0.0f};
  const MatrixView view = matrix_view(c.data(), 1, 2);
  EXPECT_TRUE(check_blocks(view, {{0, 1, 0, 1}}, constant(1, 0)).ok);
  EXPECT_TRUE(check_blocks(view, {{0, 1, 1, 1}}, constant(0, 0)).ok);
  c[0] = std::nextafter(1.0f, 2.0f);
  EXPECT_FALSE(check_blocks(view, {{0, 1, 0, 1}}, constant(1, 0)).ok);
  c[1] = -0.0f;
  EXPECT_FALSE(check_blocks(view, {{0, 1, 1, 1}}, constant(0, 0)).ok);
}

TEST(CheckBlocks, OnlyTheBlocksCount) {
  const std::vector<float> c = {1, 9, 1, 9};
  const MatrixView view = matrix_view(c.data(), 2, 2);
  EXPECT_TRUE(check_blocks(view, {{0, 2, 0, 1}}, constant(1, 0)).ok);
  EXPECT_FALSE(check_blocks(view, {{0, 2, 1, 1}}, constant(1, 0)).ok);
}

}  // namespace
}  // namespace quern::bench
