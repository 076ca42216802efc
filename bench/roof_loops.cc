#include "bench/roof_loops.h"

#include <immintrin.h>

#include <atomic>

namespace quern::bench {
namespace {

// ---- issue loops -------------------------------------------------------------------------------
// 24 independent accumulators hide the latency of 4 cycles at two issues a cycle three times over.
// The sources are not zero, so that the multipliers do real work and draw real power.
constexpr double kDotsPerTurn = 24;

#define QUERN_ALL_ZMM                                                                           \
  "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10",      \
      "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", \
      "zmm21", "zmm22", "zmm23", "zmm24", "zmm25"

// The assembler's own loop writes the 24 lines; \\n is its counter.
#define QUERN_DOT_LOOP(mnemonic, turns, word)                                             \
  asm volatile(                                                                           \
      "vpbroadcastd %1, %%zmm24\n\t"                                                      \
      "vpbroadcastd %1, %%zmm25\n\t"                                                      \
      ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n\t"          \
      "vpxord %%zmm\\n, %%zmm\\n, %%zmm\\n\n\t"                                           \
      ".endr\n\t"                                                                         \
      ".p2align 6\n"                                                                      \
      "1:\n\t"                                                                            \
      ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n\t" mnemonic \
      " %%zmm24, %%zmm25, %%zmm\\n\n\t"                                                   \
      ".endr\n\t"                                                                         \
      "decq %0\n\t"                                                                       \
      "jnz 1b"                                                                            \
      : "+r"(turns)                                                                       \
      : "r"(word)                                                                         \
      : "cc", QUERN_ALL_ZMM)

__attribute__((target("avx512f,avx512vnni"), noinline)) void int8_dots(uint64_t turns) {
  const uint32_t bytes = 0x25a97b13;
  QUERN_DOT_LOOP("vpdpbusd", turns, bytes);
}

__attribute__((target("avx512f,avx512bf16"), noinline)) void bf16_dots(uint64_t turns) {
  const uint32_t pair = 0x3f35bf1d;  // 0.707 and -0.613: the sums stay finite
  QUERN_DOT_LOOP("vdpbf16ps", turns, pair);
}

__attribute__((target("avx512f"), noinline)) void f32_fmas(uint64_t turns) {
  const uint32_t half = 0x3f000000;  // 0.25 a step: finite, and normal from the first
  QUERN_DOT_LOOP("vfmadd231ps", turns, half);
}

#undef QUERN_DOT_LOOP
#undef QUERN_ALL_ZMM

/// Palette 1, eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

struct alignas(64) TileBytes {
  uint32_t words[256];
  explicit TileBytes(uint32_t word) {
    for (uint32_t& w : words) w = word;
  }
};

// Six accumulators, two sources: a tile product takes 52 cycles and one starts every 16.
constexpr double kTileDotsPerTurn = 6;

// The compiler knows no tile registers here, so there is none to name as clobbered.
#define QUERN_TILE_LOOP(mnemonic, turns, word)               \
  const TileConfig config;                                   \
  const TileBytes source(word);                              \
  asm volatile(                                              \
      "ldtilecfg (%1)\n\t"                                   \
      "tileloadd (%2,%3,1), %%tmm6\n\t"                      \
      "tileloadd (%2,%3,1), %%tmm7\n\t"                      \
      ".irp n,0,1,2,3,4,5\n\ttilezero %%tmm\\n\n\t.endr\n\t" \
      ".p2align 6\n"                                         \
      "1:\n\t.irp n,0,1,2,3,4,5\n\t" mnemonic                \
      " %%tmm7, %%tmm6, %%tmm\\n\n\t.endr\n\t"               \
      "decq %0\n\tjnz 1b\n\t"                                \
      "tilerelease"                                          \
      : "+r"(turns)                                          \
      : "r"(&config), "r"(source.words), "r"(int64_t{64})    \
      : "cc", "memory")

__attribute__((noinline)) void int8_tiles(uint64_t turns) {
  QUERN_TILE_LOOP("tdpbusd", turns, 0x25a97b13);
}

__attribute__((noinline)) void bf16_tiles(uint64_t turns) {
  QUERN_TILE_LOOP("tdpbf16ps", turns, 0x3f35bf1d);
}

#undef QUERN_TILE_LOOP

// ---- memory readers ----------------------------------------------------------------------------
std::atomic<uint64_t> g_sink;  // keeps the loads alive

template <int kStreams, size_t kAhead>
__attribute__((target("avx512f"), noinline)) void read_avx512(const std::byte* data, size_t bytes) {
  const size_t stream = bytes / kStreams;
  __m512i sum[kStreams] = {};
  for (size_t i = 0; i < stream; i += 128) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const char* p = reinterpret_cast<const char*>(data) + s * stream + i;
      _mm_prefetch(p + kAhead, _MM_HINT_T0);
      _mm_prefetch(p + kAhead + 64, _MM_HINT_T0);
      sum[s] = _mm512_xor_si512(sum[s], _mm512_load_si512(p));
      sum[s] = _mm512_xor_si512(sum[s], _mm512_load_si512(p + 64));
    }
  }
  for (int s = 1; s < kStreams; ++s) sum[0] = _mm512_xor_si512(sum[0], sum[s]);
  uint64_t lanes[8];
  _mm512_storeu_si512(lanes, sum[0]);
  g_sink.fetch_xor(lanes[0], std::memory_order_relaxed);
}

// For machines without AVX-512, so that the bandwidth is known there too.
template <int kStreams, size_t kAhead>
void read_sse2(const std::byte* data, size_t bytes) {
  const size_t stream = bytes / kStreams;
  __m128i sum[kStreams] = {};
  for (size_t i = 0; i < stream; i += 64) {
    for (int s = 0; s < kStreams; ++s) {
      const char* p = reinterpret_cast<const char*>(data) + s * stream + i;
      _mm_prefetch(p + kAhead, _MM_HINT_T0);
      for (int j = 0; j < 64; j += 16) {
        sum[s] = _mm_xor_si128(sum[s], _mm_load_si128(reinterpret_cast<const __m128i*>(p + j)));
      }
    }
  }
  for (int s = 1; s < kStreams; ++s) sum[0] = _mm_xor_si128(sum[0], sum[s]);
  g_sink.fetch_xor(static_cast<uint64_t>(_mm_cvtsi128_si64(sum[0])), std::memory_order_relaxed);
}

constexpr Reader kAvx512Readers[] = {read_avx512<1, 1024>, read_avx512<4, 512>,
                                     read_avx512<4, 1024>};
constexpr Reader kSse2Readers[] = {read_sse2<1, 1024>, read_sse2<4, 512>, read_sse2<4, 1024>};

}  // namespace

const IssueLoop kVnniLoop = {int8_dots, kDotsPerTurn * 128};    // 64 products, 64 adds
const IssueLoop kBf16DotLoop = {bf16_dots, kDotsPerTurn * 64};  // 32 and 32
const IssueLoop kF32FmaLoop = {f32_fmas, kDotsPerTurn * 32};
const IssueLoop kAmxInt8Loop = {int8_tiles, kTileDotsPerTurn * 2 * 16 * 16 * 64};
const IssueLoop kAmxBf16Loop = {bf16_tiles, kTileDotsPerTurn * 2 * 16 * 16 * 32};

std::span<const Reader> readers(bool avx512) {
  return avx512 ? std::span<const Reader>(kAvx512Readers) : std::span<const Reader>(kSse2Readers);
}

}  // namespace quern::bench
