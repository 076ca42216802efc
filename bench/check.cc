#include "bench/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace quern::bench {
namespace {

constexpr double kWholeProblem = 4e6;  // multiply-adds that the scalar reference does in some 20 ms
constexpr int64_t kRangeColumns = 32;  // two panels
constexpr int kSampledRows = 6;
constexpr int kSampledRanges = 6;

/// `count` positions spread over [0, last], both ends included.
std::set<int64_t> spread(int64_t last, int count) {
  std::set<int64_t> at;
  for (int i = 0; i < count; ++i) at.insert(last * i / (count - 1));
  return at;
}

bool matches(const reference::Bounded& expected, DType type, double actual) {
  if (!reference::accepts(expected, type, actual)) return false;
  // An exact zero has a sign too.
  return expected.bound != 0 || expected.value != 0 ||
         std::signbit(expected.value) == std::signbit(actual);
}

}  // namespace

std::vector<Block> sample_blocks(int64_t m, int64_t n, int64_t k) {
  if (m == 0 || n == 0) return {};
  const double work = static_cast<double>(m) * static_cast<double>(n) *
                      static_cast<double>(std::max<int64_t>(k, 1));
  if (work <= kWholeProblem) return {{0, m, 0, n}};
  std::vector<Block> blocks;
  const int64_t cols = std::min(n, kRangeColumns);
  for (int64_t row : spread(m - 1, kSampledRows)) {
    for (int64_t col : spread(n - cols, kSampledRanges)) blocks.push_back({row, 1, col, cols});
  }
  return blocks;
}

CheckResult check_blocks(const MatrixView& c, const std::vector<Block>& blocks,
                         const std::function<reference::Exact(const Block&)>& exact) {
  CheckResult result;
  result.total = c.rows * c.cols;
  for (const Block& block : blocks) {
    const reference::Exact expected = exact(block);
    for (int64_t i = 0; i < block.rows; ++i) {
      for (int64_t j = 0; j < block.cols; ++j) {
        ++result.compared;
        const reference::Bounded& e = expected.at(i, j);
        if (e.bound != 0) result.exact = false;
        const double actual = reference::load(c, block.row + i, block.col + j);
        if (matches(e, c.dtype, actual)) continue;
        if (result.ok) {
          result.detail = fmt::format("C[{}, {}] = {:.9g}, reference {:.9g} with bound {:.3g}",
                                      block.row + i, block.col + j, actual, e.value, e.bound);
        }
        result.ok = false;
      }
    }
  }
  return result;
}

}  // namespace quern::bench
