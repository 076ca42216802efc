#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ops/int4_packing.h"
#include "quern/context.h"
#include "tests/support/guard_buffer.h"
#include "tests/support/rng.h"

namespace quern::test {

/// One matrix of 4-bit weights: what its numbers are, and as a checkpoint stores them, between
/// pages that fault.
class Int4Matrix {
 public:
  /// Random, of `groups` stored groups. `g_idx` is empty without act_order.
  Int4Matrix(const Int4PackSpec& spec, Int4Storage storage, std::vector<int32_t> g_idx, Rng* rng);

  /// Views of guarded copies, which are made anew: change the numbers before.
  Int4Weights store();

  std::vector<uint8_t> codes;    ///< [n, k]
  std::vector<uint8_t> nibbles;  ///< [n, groups] zeros as stored
  std::vector<float> zeros;      ///< [n, groups]
  std::vector<uint32_t> scales;  ///< [n, groups] bits
  std::vector<int32_t> g_idx;    ///< [k]
  int32_t zero_offset = 0;
  int64_t groups = 0;
  int64_t stride_slack = 0;  ///< elements between rows that nobody may read
  Flush flush = Flush::kEnd;

 private:
  MatrixView guard(const void* from, DType type, int64_t rows, int64_t cols);

  Int4PackSpec spec_;
  Int4Storage storage_;
  std::vector<GuardBuffer> operands_;
};

/// A spec with one or two matrices.
struct Int4PackCase {
  Int4PackSpec spec;
  std::vector<Int4Matrix> parts;
  std::string text() const;
};

Int4PackCase random_int4_case(uint64_t seed);

Result<PackedWeights> pack(const Context& ctx, ThreadPool& pool, Int4PackCase* c,
                           const PackProgress& progress = {});

/// Every byte of the packed weights is what the text in packed_weights.h says.
::testing::AssertionResult is_packed(const PackedWeights& w, const Int4PackCase& c);

std::vector<uint8_t> bytes_of(const PackedWeights& w);

}  // namespace quern::test
