#pragma once

#include <algorithm>
#include <cstdint>

#include "quern/tuning.h"

namespace quern::inline v0 {

/// How work is cut up: pure functions of shapes and counts, so that they can be tested without
/// running anything. Nothing here can change a result, only who computes which part of it when.

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const noexcept { return end - begin; }
};

/// Part `index` of [0, total) cut into `parts` contiguous pieces that differ by at most one.
Range split_range(int64_t total, int64_t parts, int64_t index) noexcept;

/// The same in multiples of `step` but for the end of the last piece, the pieces differing by at
/// most one step.
Range split_steps(int64_t total, int64_t step, int64_t parts, int64_t index) noexcept;

/// Rows in blocks of at most mr. Without tiles they differ by at most one row, so that 7 rows are 4
/// + 3 and not 6 + 1. With tiles the first one may be a tile short, so that the rest of less than a
/// tile shares its block with a whole one, whose configuration then serves both.
class RowBlocks {
 public:
  RowBlocks() noexcept = default;
  RowBlocks(int64_t rows, int mr, int row_step) noexcept;

  int64_t count() const noexcept { return count_; }
  /// How many blocks from `index` on have its number of rows and follow one another.
  int64_t alike(int64_t index) const noexcept {
    return tiles_ ? 1 : (index < spare_ ? spare_ : count_) - index;
  }
  /// Asked for each call of a kernel: no division.
  Range at(int64_t index) const noexcept {
    const int64_t begin = index * base_ + (tiles_ ? -spare_ : std::min(index, spare_));
    const int64_t end = begin + base_ + (!tiles_ && index < spare_ ? 1 : 0);
    return {std::max<int64_t>(begin, 0) * step_, std::min(end * step_, rows_)};
  }

 private:
  int64_t rows_ = 0;
  int64_t step_ = 1;
  int64_t count_ = 0;
  int64_t base_ = 0;   ///< steps of a block
  int64_t spare_ = 0;  ///< without tiles: blocks with one more; with: steps the first one lacks
  bool tiles_ = false;
};

/// Threads as a grid over rows and columns of C. m_parts * n_parts <= threads; the rest idles.
struct ThreadGrid {
  int m_parts = 1;
  int n_parts = 1;
};

/// Minimises the largest share. On a tie columns are cut rather than rows, because then every
/// weight byte is read by one thread only. `units` counts the smallest pieces columns can be cut
/// into (panels, or gate/up pairs of panels).
ThreadGrid choose_grid(int64_t m, int64_t units, int threads) noexcept;

/// Facts about a GEMM that blocking depends on.
struct GemmFacts {
  int64_t k = 0;         ///< as packed: with the padding of groups
  int a_bytes = 2;       ///< of one element of A as the kernel reads it
  int weight_bits = 16;  ///< of one packed weight
  int decoded_bits = 0;  ///< of one that was decoded to scratch for the kernel; 0: it reads panels
  int64_t group = 0;     ///< K is cut between groups of so many columns only; 0: anywhere
  int64_t block = 0;  ///< columns of K that share a scale that is part of the weights; 0: none do
  int64_t group_steps = 0;  ///< steps of the kernel's K loop in a group
  int panel_registers = 1;  ///< vector registers a panel of the block takes beside its accumulators
  int other_registers = 1;  ///< and those the block takes whatever its size is
  int accumulators = 1;     ///< and of each element of the block
  bool wide = false;        ///< K is cut at multiples of kWideK whatever else holds
  bool pairs = false;       ///< gate and up panels: blocks are an even number of panels wide
  /// 1; 16 where accumulators are AMX tiles: blocks are made of whole tiles of rows, but for the
  /// last one.
  int row_step = 1;
  int tile_bytes = 64;  ///< of a row in one tile of A
  /// jit::IsaFeatures::half_width_vectors, in a family without tiles.
  bool half_width = false;
  bool far_prefetch = false;  ///< jit::IsaFeatures::far_prefetch

  bool tiles() const noexcept { return row_step > 1; }
  bool decodes() const noexcept { return decoded_bits != 0; }
  /// Of one panel, while the kernel reads four lines of it, which is a turn.
  int64_t packed_lines_of_a_turn() const noexcept {
    return decodes() ? 4 * weight_bits / decoded_bits : 4;
  }
  /// `depth` columns of K as they are decoded: blocks to a whole AMX tile of pairs.
  int64_t decoded_depth(int64_t depth) const noexcept {
    constexpr int64_t kTileDepth = 32;
    return block == 0 ? depth : (depth + kTileDepth - 1) / kTileDepth * kTileDepth;
  }
  /// Of `depth` columns of K of one panel: as packed, and as the kernel reads it.
  int64_t packed_bytes(int64_t depth) const noexcept { return depth * 16 * weight_bits / 8; }
  int64_t read_bytes(int64_t depth) const noexcept {
    return depth * 16 * (decodes() ? decoded_bits : weight_bits) / 8;
  }
};

/// Longer s8 x s8 sums are cut at fixed multiples of this and added in 64 bits (numeric contract,
/// ops/README.md).
constexpr int64_t kWideK = 65536;

/// The most rows a register block of a family without tiles has.
constexpr int kMostBlockRows = 16;
/// The most rows in two blocks of so many with two panels: each load serves two dots, where one
/// panel takes a load a dot, as many as there are. That gains 15 to 39 % with vectors of half
/// width, 6 to 30 % on Zen 5 in fast memory (bench/NOTES.md).
constexpr int kHalfBlockRows = 8;
/// The most panels a register block has.
constexpr int kMostBlockPanels = 4;

/// Rows that pass over a chunk before the walk moves on. Weights are read once more for each so
/// many rows, so that few are worth it only where A then stays in L2, and the row after the last of
/// them costs a pass of its own: 72 rows made M = 73 slower than M = 90 (bench/NOTES.md).
constexpr int64_t kMostRowsAtOnce = 576;

/// The most rows a register block of nr panels can have; 0 where the family has none so wide.
int max_mr(const GemmFacts& facts, int nr) noexcept;

/// The compiled-in answer for M rows.
GemmBlocking default_blocking(const GemmFacts& facts, int64_t m) noexcept;

/// Null where the blocking is legal for the facts, else the rule it breaks.
const char* invalid(const GemmBlocking& blocking, const GemmFacts& facts) noexcept;

/// M values share a blocking by bucket: 1..16 each, then powers of two up to 2^11, then the rest.
constexpr int kMBuckets = 24;
int m_bucket(int64_t m) noexcept;
/// The largest M of a bucket, which stands for it in look-ups.
int64_t bucket_m(int bucket) noexcept;

}  // namespace quern::inline v0
