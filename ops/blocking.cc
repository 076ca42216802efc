#include "ops/blocking.h"

#include <algorithm>
#include <array>
#include <bit>

#include "ops/checked.h"

namespace quern::inline v0 {
namespace {

constexpr int kVectorRegisters = 32;
// AMX: eight tiles, four of them accumulators.
constexpr int kTileRows = 16;
constexpr int kMostAccumulators = 4;

// Cache sizes from CPUID can be masked (they are on cloud machines), so these are the assumptions:
// 48 KiB L1d and 1 MiB L2 a core. Two chunks of weights, the one that is multiplied and the one
// that is fetched meanwhile, share L2 with what passes over them.
constexpr int64_t kL2ForChunk = 256 << 10;
// Half of L1: with few row blocks a chunk is read again before it is old.
constexpr int64_t kL1ForChunk = 24 << 10;
constexpr int64_t kFewRows = 32;
// AMX (2 MiB of L2 on every core that has it): a chunk of all of K beats one that fits L1 by 5 to
// 30 %, because a cut costs four tile loads and stores a block, and because rows of A that are read
// for a kilobyte at a time run into no prefetcher. What counts is that A stays in L2 while the
// columns pass: 1.4 to 1.8 times for bf16 at K = 4096 (bench/NOTES.md).
constexpr int64_t kTilesForChunk = 256 << 10;
constexpr int64_t kTilesForRows = 1 << 20;
constexpr int64_t kFewestTileRows = 64;
constexpr int64_t kMostTileRows = 384;
// Where K is so long that not even a block of rows would stay, every chunk of weights should at
// least serve many.
constexpr int64_t kTileRowsOfLongK = 256;
// In flight over all streams of a thread: bandwidth times latency is 2 to 3 KiB, and a stream must
// be ahead of the hardware's own prefetcher to be of use (bench/NOTES.md). Zen 5: 4 to 5 KiB.
constexpr int kPrefetch = 4096;
constexpr int kFarPrefetch = 8192;
// A single stream is read from memory only as fast as it is fetched ahead.
constexpr int kPrefetchAlone = 8192;
// With vectors of half width (Zen 4) four streams come faster without, where a line of weights is
// multiplied in no more operations than this, decoding included: 4 to 14 % at M = 1 to 6. Where the
// dot products take longer than the weights, it is 8 % slower.
constexpr int64_t kOperationsThatHideNothing = 12;

// Decoded weights: written, and read again at once. For tiles they stay in L1 beside the rows and
// the sums: 64 rows of W4A8 take 732 us with 8 KiB, 1126 with 16 (bench/NOTES.md).
constexpr int64_t kTilesForDecoded = 8 << 10;

// Without groups a cut of K costs tile loads and stores, as it does bf16_gemm: where a chunk is
// read often, all of K is better (not measured on such a machine yet).
constexpr int64_t kFewRowsOfTiles = 64;

int64_t decoded_chunk(const GemmFacts& facts, int64_t m) noexcept {
  if (!facts.tiles()) return kL2ForChunk;
  return facts.group == 0 && m > kFewRowsOfTiles ? kTilesForChunk : kTilesForDecoded;
}

/// What K is cut at.
int64_t cut_unit(const GemmFacts& facts) noexcept {
  return facts.group != 0 ? facts.group : 64;
}

/// kc with which nr panels fit `bytes`; 0 where K need not be cut. In equal parts: a chunk is
/// fetched while the one before is multiplied, and only as much of it as that one is deep.
int64_t chunk_depth(const GemmFacts& facts, int nr, int64_t bytes) noexcept {
  const int64_t unit = cut_unit(facts);
  const int64_t fitting = std::max<int64_t>(bytes / (nr * facts.read_bytes(unit)), 1) * unit;
  if (facts.k <= fitting + fitting / 2) return 0;
  return ceil_div(ceil_div(facts.k, ceil_div(facts.k, fitting)), unit) * unit;
}

/// Of the most rows, where one panel at a time would be a load for each dot product: measured on
/// Zen 4 and Zen 5.
bool takes_two_blocks(const GemmFacts& facts) noexcept {
  return facts.half_width || facts.far_prefetch;
}

struct RegisterBlock {
  int mr = 0;
  int nr = 0;
};

// Up to 16 rows the block takes them all, as wide as the registers allow: weights pass once, and a
// single pass is the only one whose stream from memory and dot products overlap well. More rows
// pass in blocks of 9 by 3 (95 % of Granite Rapids' peak from L1, where 6 by 4 gets 92 and 14 by 2
// 90 %). A family that decodes its weights does so again for every block, so there rows count: 12
// by 2.
//
// Tiles of accumulators are four whatever the shape; two by two need the fewest loads. One tile of
// rows is wide instead.
RegisterBlock register_block(const GemmFacts& facts, int64_t m) noexcept {
  if (facts.tiles() && m <= kTileRows) return {kTileRows, facts.decodes() ? 2 : 4};
  if (facts.tiles()) return {2 * kTileRows, 2};
  const auto legal = [&](int nr) { return !facts.pairs || nr % 2 == 0; };
  if (m <= kMostBlockRows) {
    for (int nr : {4, 3, 2, 1}) {
      if (nr == 1 && takes_two_blocks(facts) && max_mr(facts, 2) >= kHalfBlockRows) {
        return {kHalfBlockRows, 2};
      }
      if (legal(nr) && max_mr(facts, nr) >= m) return {max_mr(facts, nr), nr};
    }
  }
  const std::array<int, 4> plain = {3, 4, 2, 1};
  const std::array<int, 4> decoding = {2, 1, 3, 4};
  for (int nr : facts.panel_registers > 1 ? decoding : plain) {
    if (legal(nr)) return {max_mr(facts, nr), nr};
  }
  return {};
}

/// How far ahead each of nr streams is fetched while m rows are multiplied with it once.
int prefetch_bytes(const GemmFacts& facts, int nr, int64_t m) noexcept {
  if (nr == 1) return kPrefetchAlone;
  // A dot takes four bytes of a row. Codes are decoded in an operation or two for each dot's worth.
  const int64_t dots_of_line = int64_t{8} * facts.a_bytes / facts.weight_bits;
  const int64_t decoding = facts.weight_bits < 8 * facts.a_bytes ? facts.a_bytes : 0;
  const int64_t operations = dots_of_line * (m + decoding);
  const bool streams = nr == kMostBlockPanels && operations <= kOperationsThatHideNothing;
  if (facts.half_width && streams) return 0;
  return (facts.far_prefetch ? kFarPrefetch : kPrefetch) / nr / 64 * 64;
}

/// Rows that pass over a chunk together.
int64_t rows_at_once(const GemmFacts& facts, int mr) noexcept {
  if (!facts.tiles()) return kMostRowsAtOnce / mr * mr;
  const int64_t fitting = kTilesForRows / std::max<int64_t>(facts.k * facts.a_bytes, 1);
  if (fitting < mr) return kTileRowsOfLongK;
  return std::clamp(fitting, kFewestTileRows, kMostTileRows) / mr * mr;
}

}  // namespace

Range split_range(int64_t total, int64_t parts, int64_t index) noexcept {
  const int64_t base = total / parts;
  const int64_t rest = total % parts;
  const int64_t begin = index * base + std::min(index, rest);
  return {begin, begin + base + (index < rest ? 1 : 0)};
}

Range split_steps(int64_t total, int64_t step, int64_t parts, int64_t index) noexcept {
  const Range r = split_range(ceil_div(total, step), parts, index);
  return {std::min(r.begin * step, total), std::min(r.end * step, total)};
}

RowBlocks::RowBlocks(int64_t rows, int mr, int row_step) noexcept
    : rows_(rows), step_(row_step), count_(ceil_div(rows, mr)), tiles_(row_step > 1) {
  if (count_ <= 0) return;
  const int64_t steps = ceil_div(rows, row_step);
  base_ = tiles_ ? mr / row_step : steps / count_;
  spare_ = tiles_ ? count_ * base_ - steps : steps % count_;
}

ThreadGrid choose_grid(int64_t m, int64_t units, int threads) noexcept {
  ThreadGrid best;
  // In double: the largest share of rows times columns can exceed 2^63.
  double best_share = static_cast<double>(m) * static_cast<double>(units);
  for (int m_parts = 1; m_parts <= threads; ++m_parts) {
    const int n_parts = threads / m_parts;
    const double share =
        static_cast<double>(ceil_div(m, m_parts)) * static_cast<double>(ceil_div(units, n_parts));
    if (share < best_share) {
      best_share = share;
      best = {m_parts, n_parts};
    }
  }
  return best;
}

int max_mr(const GemmFacts& facts, int nr) noexcept {
  if (facts.tiles()) return std::min(kMostAccumulators / nr, 2) * kTileRows;
  const int left = kVectorRegisters - facts.other_registers - nr * facts.panel_registers;
  return std::clamp(left / (nr * facts.accumulators), 0, kMostBlockRows);
}

GemmBlocking default_blocking(const GemmFacts& facts, int64_t m) noexcept {
  const RegisterBlock block = register_block(facts, m);
  GemmBlocking b;
  b.mr = block.mr;
  b.nr = block.nr;
  b.nc = int64_t{16} * b.nr;
  b.mc = int64_t{1} << 30;
  b.prefetch_bytes = prefetch_bytes(facts, b.nr, m);
  if (facts.wide) b.kc = kWideK;
  if (facts.decodes()) {
    b.kc = chunk_depth(facts, b.nr, decoded_chunk(facts, m));
    b.mc = rows_at_once(facts, b.mr);
  } else if (m > b.mr) {
    if (!facts.wide) {
      const bool two_blocks = takes_two_blocks(facts) && m <= kMostBlockRows;
      const bool in_l1 = m <= kFewRows && !two_blocks;
      const int64_t cache = facts.tiles() ? kTilesForChunk : in_l1 ? kL1ForChunk : kL2ForChunk;
      b.kc = chunk_depth(facts, b.nr, cache);
    }
    b.mc = rows_at_once(facts, b.mr);
  } else if (b.kc != 0) {
    b.mc = b.mr;
  }
  return b;
}

const char* invalid(const GemmBlocking& b, const GemmFacts& facts) noexcept {
  if (b.nr < 1 || b.nr > kMostBlockPanels) return "nr must be 1..4";
  if (facts.pairs && b.nr % 2 != 0) return "nr must be even for gate and up panels";
  if (b.mr < 1 || b.mr > max_mr(facts, b.nr)) return "mr is out of the kernel family's range";
  if (b.mr % facts.row_step != 0) return "mr must be a whole number of tiles of rows";
  if (b.mc % facts.row_step != 0) return "mc must be a whole number of tiles of rows";
  if (b.mc < b.mr || b.mc > int64_t{1} << 30) return "mc must be mr..2^30";
  if (b.nc != int64_t{16} * b.nr) return "nc must be 16 * nr";
  const int64_t unit = cut_unit(facts);
  if (b.kc < 0 || b.kc % unit != 0) {
    return facts.group != 0 ? "kc must be 0 or whole groups" : "kc must be 0 or a multiple of 64";
  }
  if (b.kc != 0 && b.mc > 4096) return "mc must be at most 4096 where K is cut";
  if (facts.wide && b.kc != kWideK) return "kc must be 65536 for sums that need 64 bits";
  if (b.prefetch_bytes < 0 || b.prefetch_bytes > 1 << 20 || b.prefetch_bytes % 64 != 0) {
    return "prefetch_bytes must be a multiple of 64 in 0..2^20";
  }
  return nullptr;
}

int m_bucket(int64_t m) noexcept {
  if (m <= 1) return 0;
  if (m <= 16) return static_cast<int>(m - 1);
  const auto log2 = static_cast<int>(std::bit_width(static_cast<uint64_t>(m - 1)));  // 17..32: 5
  return std::min(16 + log2 - 5, kMBuckets - 1);
}

int64_t bucket_m(int bucket) noexcept {
  return bucket < 16 ? bucket + 1 : int64_t{1} << (bucket - 16 + 5);
}

}  // namespace quern::inline v0
