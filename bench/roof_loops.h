#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quern::bench {

/// A loop of one arithmetic instruction on registers only: the rate at which it issues.
struct IssueLoop {
  void (*run)(uint64_t turns);
  double ops_per_turn;  ///< a multiply and an add count as two
};

extern const IssueLoop kVnniLoop;     ///< vpdpbusd zmm; needs AVX512-VNNI
extern const IssueLoop kBf16DotLoop;  ///< vdpbf16ps zmm; needs AVX512-BF16
extern const IssueLoop kF32FmaLoop;   ///< vfmadd231ps zmm; needs AVX512-F
extern const IssueLoop kAmxInt8Loop;  ///< tdpbusd; needs AMX-INT8 and its permission
extern const IssueLoop kAmxBf16Loop;  ///< tdpbf16ps; needs AMX-BF16 and its permission

/// A way to read memory. `bytes` is a multiple of kReadUnit, `data` aligned to 64.
using Reader = void (*)(const std::byte* data, size_t bytes);
constexpr size_t kReadUnit = 512;

/// The patterns worth trying, because no single one is best everywhere: four streams a thread with
/// prefetcht0 1 KiB ahead on Zen 5 (one stream with prefetch is 25 % slower there), one stream with
/// the same prefetch on Granite Rapids (3 to 8 % ahead of four). Streams without prefetch, 8 and 16
/// streams, and prefetchnta were never best on either (bench/NOTES.md).
std::span<const Reader> readers(bool avx512);

}  // namespace quern::bench
