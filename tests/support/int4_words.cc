#include "tests/support/int4_words.h"

#include <functional>

namespace quern::test {
namespace {

int64_t eighths(int64_t x) {
  return (x + 7) / 8;
}

/// Fills words one nibble at a time: `at(row, col, nibble)` is the number that stands there.
Int4Words words(int64_t rows, int64_t cols,
                const std::function<uint32_t(int64_t, int64_t, int64_t)>& at) {
  Int4Words w;
  w.rows = rows;
  w.cols = cols;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      uint32_t word = 0;
      for (int64_t nibble = 7; nibble >= 0; --nibble) word = word * 16 + at(i, j, nibble);
      w.word.push_back(static_cast<int32_t>(word));
    }
  }
  return w;
}

/// A matrix of small numbers that answers `padding` outside.
struct Table {
  const std::vector<uint8_t>& value;
  int64_t rows, cols;
  uint32_t padding;

  uint32_t operator()(int64_t row, int64_t col) const {
    if (row >= rows || col >= cols) return padding;
    return value[static_cast<size_t>(row * cols + col)];
  }
};

/// AWQ's kernels unpack even nibbles before odd ones.
int64_t awq_column(int64_t nibble) {
  return nibble < 4 ? 2 * nibble : 2 * nibble - 7;
}

}  // namespace

Int4Words int4_code_words(Int4Storage storage, const std::vector<uint8_t>& codes, int64_t n,
                          int64_t k, uint8_t padding) {
  const Table code{codes, n, k, padding};
  switch (storage) {
    case Int4Storage::kGptq:
      return words(eighths(k), n,
                   [&](int64_t i, int64_t j, int64_t b) { return code(j, 8 * i + b); });
    case Int4Storage::kAwq:
      return words(k, eighths(n),
                   [&](int64_t i, int64_t j, int64_t b) { return code(8 * j + awq_column(b), i); });
    case Int4Storage::kRowMajor:
      return words(n, eighths(k),
                   [&](int64_t i, int64_t j, int64_t b) { return code(i, 8 * j + b); });
  }
  return {};
}

Int4Words int4_zero_words(Int4Storage storage, const std::vector<uint8_t>& nibbles, int64_t n,
                          int64_t groups, uint8_t padding) {
  const Table zero{nibbles, n, groups, padding};
  switch (storage) {
    case Int4Storage::kGptq:
      return words(groups, eighths(n),
                   [&](int64_t i, int64_t j, int64_t b) { return zero(8 * j + b, i); });
    case Int4Storage::kAwq:
      return words(groups, eighths(n),
                   [&](int64_t i, int64_t j, int64_t b) { return zero(8 * j + awq_column(b), i); });
    case Int4Storage::kRowMajor:
      return words(eighths(n), groups,
                   [&](int64_t i, int64_t j, int64_t b) { return zero(8 * i + b, j); });
  }
  return {};
}

}  // namespace quern::test
