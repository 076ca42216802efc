#include "ops/blocking.h"

#include <algorithm>
#include <bit>

#include "ops/checked.h"

namespace quern::inline v0 {
namespace {

// Cache sizes from CPUID can be masked (they are on cloud machines), so these are the assumptions:
// 48 KiB L1d and 1 MiB L2 a core. A register block's rows of A must stay in L1 while the panels of
// B stream past them, with half of L1 left for those.
constexpr int64_t kL1ForA = 24 << 10;
// Up to this many rows a call is decode: weights come from memory once and bandwidth decides.
constexpr int64_t kDecodeRows = 16;
// Measured on a 2-core Zen 5 machine: four streams a thread, 1 KiB ahead.
constexpr int kDecodePrefetch = 1024;
// Rows that keep the partial sums of one column block (mc * 64 * 4 bytes) inside L2 beside the
// panels.
constexpr int64_t kRowsWithPartials = 192;

}  // namespace

Range split_range(int64_t total, int64_t parts, int64_t index) noexcept {
  const int64_t base = total / parts;
  const int64_t rest = total % parts;
  const int64_t begin = index * base + std::min(index, rest);
  return {begin, begin + base + (index < rest ? 1 : 0)};
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

GemmBlocking default_blocking(const GemmFacts& facts, int64_t m) noexcept {
  GemmBlocking b;
  b.mr = facts.max_mr;
  b.nr = 4;
  b.nc = int64_t{16} * b.nr;
  b.prefetch_bytes = m <= kDecodeRows ? kDecodePrefetch : 0;
  if (m > b.mr && !facts.wide) {
    const int64_t fitting = kL1ForA / b.mr / facts.a_bytes / 64 * 64;
    if (facts.k > fitting + fitting / 2) b.kc = std::max<int64_t>(fitting, 64);
  }
  if (facts.wide) b.kc = kWideK;
  b.mc = b.kc == 0 ? int64_t{1} << 30 : kRowsWithPartials / b.mr * b.mr;
  return b;
}

const char* invalid(const GemmBlocking& b, const GemmFacts& facts) noexcept {
  if (b.nr != 4) return "nr must be 4";
  if (b.mr < 1 || b.mr > facts.max_mr) return "mr is out of the kernel family's range";
  if (b.mc < b.mr || b.mc > int64_t{1} << 30) return "mc must be mr..2^30";
  if (b.nc != int64_t{16} * b.nr) return "nc must be 16 * nr";
  if (b.kc < 0 || b.kc % 64 != 0) return "kc must be 0 or a multiple of 64";
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
