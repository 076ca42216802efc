#pragma once

#include <cstdint>
#include <vector>

#include "quern/int4_weights.h"

namespace quern::test {

/// 32-bit words of eight nibbles as a checkpoint has them, padded with `padding` where a dimension
/// is no multiple of eight: readers must not look at those.
struct Int4Words {
  std::vector<int32_t> word;
  int64_t rows = 0;
  int64_t cols = 0;

  MatrixView view() const { return matrix_view(word.data(), rows, cols); }
};

/// `codes` [n, k], each below 16.
Int4Words int4_code_words(Int4Storage storage, const std::vector<uint8_t>& codes, int64_t n,
                          int64_t k, uint8_t padding = 0);
/// `nibbles` [n, groups], each below 16: what is stored, which for GPTQ v1 is the zero less one.
Int4Words int4_zero_words(Int4Storage storage, const std::vector<uint8_t>& nibbles, int64_t n,
                          int64_t groups, uint8_t padding = 0);

}  // namespace quern::test
