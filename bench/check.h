#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "bench/op_case.h"
#include "quern/tensor_view.h"
#include "reference/exact.h"

namespace quern::bench {

/// A rectangle of the output.
struct Block {
  int64_t row = 0;
  int64_t rows = 0;
  int64_t col = 0;
  int64_t cols = 0;
  friend bool operator==(const Block&, const Block&) = default;
};

/// Everything when m * n * k is small. Otherwise single rows (the first, the last and some between)
/// by column ranges (the first, the last and some between, so that every thread's share and both
/// edges of the register blocks are hit); which ones depends on the sizes only.
std::vector<Block> sample_blocks(int64_t m, int64_t n, int64_t k);

/// Compares each block of `c` with what `exact` says for it: bit for bit where the bound is 0,
/// within the bound elsewhere.
CheckResult check_blocks(const MatrixView& c, const std::vector<Block>& blocks,
                         const std::function<reference::Exact(const Block&)>& exact);

}  // namespace quern::bench
