#pragma once

#include <cstdint>
#include <vector>

#include "quern/int4_gemm.h"
#include "tests/ops/case_values.h"
#include "tests/support/int4_words.h"
#include "tests/support/rng.h"
#include "tests/support/test_matrix.h"

/// The weights of an int4 test case: stored words, scales, zeros and g_idx between guard pages.
namespace quern::test {

inline constexpr Int4Storage kInt4Storages[] = {Int4Storage::kGptq, Int4Storage::kAwq,
                                                Int4Storage::kRowMajor};

/// What g_idx says.
enum class GroupOrder : uint8_t {
  kSorted,       ///< k / group: what a checkpoint without activation order might have
  kShuffled,     ///< a permutation of that
  kAlternating,  ///< 0, 1, 2, ..., 0, 1, 2, ...
  kAny,          ///< groups of any size, some of them empty
  kLast,         ///< one group has all columns
};

struct Int4Shape {
  Int4GemmDesc desc;
  Int4Storage storage = Int4Storage::kGptq;
  int32_t zero_offset = 0;

  int64_t groups() const;
  /// Scales and zeros that are floats, and zeros that are words.
  int64_t scale_rows() const { return by_column() ? desc.n : groups(); }
  int64_t scale_cols() const { return by_column() ? groups() : desc.n; }

 private:
  bool by_column() const { return storage == Int4Storage::kRowMajor; }
};

/// Codes, zeros and scales of every group and column, and the same in storage.
class Int4Operand {
 public:
  Int4Operand() = default;
  /// `limit` is that of Fill::kExact: the largest |code - zero|.
  Int4Operand(const Int4Shape& shape, Fill fill, int64_t limit, Rng& rng, int64_t pad,
              Placements& places);

  /// `g_idx` where there is one.
  Int4Weights weights(const TestMatrix& g_idx) const;
  void protect();

  /// [n, k] and [n, groups].
  const std::vector<uint8_t>& codes() const { return codes_; }
  const std::vector<double>& zeros() const { return zeros_; }

  TestMatrix words, scale, zero;

 private:
  void draw(Fill fill, int64_t limit, Rng& rng);
  void store(Rng& rng, int64_t pad, Placements& places);
  void store_scales(Fill fill, Rng& rng);

  Int4Shape shape_;
  std::vector<uint8_t> codes_;
  std::vector<uint8_t> stored_zeros_;
  std::vector<double> zeros_;
};

TestMatrix make_g_idx(const Int4Shape& shape, GroupOrder order, Rng& rng, Placements& places);

/// Groups of every kind (reliability.md K7): those that occur, k and all of it, and any.
int64_t draw_group(Rng& rng, int64_t k);

}  // namespace quern::test
