// A GEMM as the library's generators write it, 2 x 2 tiles held across K, under the emulator and
// against plain C++. It also shows what the counters say about a kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "tests/support/amx_trap_fixture.h"
#include "tests/support/rng.h"

namespace quern::amx_emu {
namespace {

using test::Rng;

/// Arguments of the kernel: one block of C, of up to 32 x 32.
struct BlockArgs {
  const uint8_t* config;
  const void* a;  ///< rows of `a_stride` bytes
  const void* b;  ///< packed: rows of `b_stride` bytes, each 4 bytes of K for every column
  uint32_t* c;    ///< rows of `c_stride` bytes
  uint64_t a_stride, b_stride, c_stride;
  uint64_t a_second, c_second;  ///< distance in bytes of the second tile of rows
  uint64_t steps;               ///< 64 bytes of K each
};

/// tmm0..3 the block of C, row by row; tmm4, 5 A; tmm6, 7 B. C is written, not added to.
Code make_kernel(Op dot) {
  return Code([dot](Code& g) {
    const auto arg = [&g](size_t offset) { return g.ptr[g.rdi + offset]; };
    g.push(g.rbx);
    g.ldtilecfg(g.ptr[g.rsi]);
    g.mov(g.rax, arg(offsetof(BlockArgs, a)));
    g.mov(g.rdx, arg(offsetof(BlockArgs, b)));
    g.mov(g.r8, arg(offsetof(BlockArgs, a_stride)));
    g.mov(g.r9, arg(offsetof(BlockArgs, b_stride)));
    g.mov(g.rcx, arg(offsetof(BlockArgs, steps)));
    g.mov(g.r10, g.rax);
    g.add(g.r10, arg(offsetof(BlockArgs, a_second)));
    g.mov(g.r11, g.r9);
    g.shl(g.r11, 4);  // 16 rows of packed B make a step
    for (int t = 0; t < 4; ++t) g.tilezero(Xbyak::Tmm(t));
    Xbyak::Label loop;
    g.L(loop);
    g.tileloadd(g.tmm6, g.ptr[g.rdx + g.r9]);
    g.tileloadd(g.tmm4, g.ptr[g.rax + g.r8]);
    emit(g, make_dot(dot, 0, 4, 6), g.ptr[g.rax]);
    g.tileloadd(g.tmm7, g.ptr[g.rdx + g.r9 + 64]);
    emit(g, make_dot(dot, 1, 4, 7), g.ptr[g.rax]);
    g.tileloadd(g.tmm5, g.ptr[g.r10 + g.r8]);
    emit(g, make_dot(dot, 2, 5, 6), g.ptr[g.rax]);
    emit(g, make_dot(dot, 3, 5, 7), g.ptr[g.rax]);
    g.add(g.rax, 64);
    g.add(g.r10, 64);
    g.add(g.rdx, g.r11);
    g.dec(g.rcx);
    g.jnz(loop);
    g.mov(g.rbx, arg(offsetof(BlockArgs, c)));
    g.mov(g.r8, arg(offsetof(BlockArgs, c_stride)));
    g.tilestored(g.ptr[g.rbx + g.r8], g.tmm0);
    g.tilestored(g.ptr[g.rbx + g.r8 + 64], g.tmm1);
    g.add(g.rbx, arg(offsetof(BlockArgs, c_second)));
    g.tilestored(g.ptr[g.rbx + g.r8], g.tmm2);
    g.tilestored(g.ptr[g.rbx + g.r8 + 64], g.tmm3);
    g.tilerelease();
    g.pop(g.rbx);
    g.ret();
  });
}

/// Sizes whose last blocks are partial in every dimension but K: 2 x 2 blocks of 32, 24 rows and
/// columns (16 + 8).
constexpr int kM = 56, kN = 56, kK4 = 3 * 16;  // K in dwords: 192 int8, 96 bf16

/// Tiles of a block with m x n elements of C.
Config block_config(int m, int n) {
  const int rows[] = {std::min(m, 16), m - std::min(m, 16)};
  const int columns[] = {std::min(n, 16), n - std::min(n, 16)};
  Config config;
  for (int t = 0; t < 4; ++t) config.tile(t, rows[t / 2], 4 * columns[t % 2]);
  config.tile(4, rows[0], 64).tile(5, rows[1], 64);
  config.tile(6, 16, 4 * columns[0]).tile(7, 16, 4 * columns[1]);
  return config;
}

/// A: kM rows of kK4 dwords. B: kK4 rows of kN dwords. C as bits.
std::vector<uint32_t> run_gemm(Op dot, const std::vector<uint32_t>& a,
                               const std::vector<uint32_t>& b) {
  static_assert(sizeof(BlockArgs) == 80);
  const Code kernel = make_kernel(dot);
  std::vector<uint32_t> c(kM * kN, 0xdeadbeef);
  for (int m = 0; m < kM; m += 32) {
    for (int n = 0; n < kN; n += 32) {
      const Config config = block_config(std::min(32, kM - m), std::min(32, kN - n));
      const BlockArgs args = {config.bytes,
                              &a[static_cast<size_t>(m * kK4)],
                              &b[static_cast<size_t>(n)],
                              &c[static_cast<size_t>(m * kN + n)],
                              4 * kK4,
                              4 * kN,
                              4 * kN,
                              16 * 4 * kK4,
                              16 * 4 * kN,
                              kK4 / 16};
      kernel.run(&args, config.bytes);
    }
  }
  return c;
}

class AmxGemm : public TrapTest {
 protected:
  /// What the problem's shape says: 4 blocks of 3 steps, 4 tiles of each operand pair.
  static void expect_counts(const Counters& c, int in_dword) {
    EXPECT_EQ(c.dots(), 4u * 4 * (kK4 / 16));  // = ceil(M/16) * ceil(N/16) * K steps
    EXPECT_EQ(c.loads_per_dot(), 1.0);
    EXPECT_EQ(c[Op::kLdtilecfg], 4u);
    EXPECT_EQ(c[Op::kTilerelease], 4u);
    EXPECT_EQ(c[Op::kTilestored], 16u);
    EXPECT_EQ(c[Count::kBytesStored], 4u * kM * kN);
    EXPECT_EQ(c[Count::kMacsUseful], static_cast<uint64_t>(kM * kN * kK4 * in_dword));
    EXPECT_DOUBLE_EQ(c.utilisation(), 56.0 * 56 / (64 * 64));
    // ldtilecfg; tilezero and first loads; then each step in one piece; stores.
    EXPECT_LE(c[Count::kTraps], 4u * (1 + 3 + 2 + 1));
  }
};

TEST_F(AmxGemm, Int8InEverySignForm) {
  const Scope scope;
  ASSERT_TRUE(scope.installed()) << scope.reason();
  Rng rng(3);
  std::vector<uint32_t> a(kM * kK4), b(kK4 * kN);
  for (uint32_t& x : a) x = static_cast<uint32_t>(rng.next());
  for (uint32_t& x : b) x = static_cast<uint32_t>(rng.next());
  for (const Op op : {Op::kTdpbssd, Op::kTdpbsud, Op::kTdpbusd, Op::kTdpbuud}) {
    const bool a_signed = op == Op::kTdpbssd || op == Op::kTdpbsud;
    const bool b_signed = op == Op::kTdpbssd || op == Op::kTdpbusd;
    const auto value = [](uint32_t dword, int i, bool is_signed) {
      const uint32_t byte = dword >> (8 * i) & 255;
      return static_cast<int>(byte) - (is_signed && byte > 127 ? 256 : 0);
    };
    const Counters before = thread_counters();
    const std::vector<uint32_t> c = run_gemm(op, a, b);
    expect_counts(thread_counters() - before, 4);
    for (size_t m = 0; m < kM; ++m) {
      for (size_t n = 0; n < kN; ++n) {
        int64_t sum = 0;
        for (size_t k = 0; k < kK4; ++k) {
          for (int i = 0; i < 4; ++i) {
            sum += value(a[m * kK4 + k], i, a_signed) * value(b[k * kN + n], i, b_signed);
          }
        }
        ASSERT_EQ(c[m * kN + n], static_cast<uint32_t>(sum))
            << to_string(op) << " " << m << " " << n;
      }
    }
    EXPECT_EQ(expect_released(), "");
  }
}

TEST_F(AmxGemm, Bf16InTheArchitecturesOrder) {
  const Scope scope;
  ASSERT_TRUE(scope.installed()) << scope.reason();
  Rng rng(4);
  std::vector<uint32_t> a(kM * kK4), b(kK4 * kN);
  // Of either sign, between 2^-8 and 2: most sums round.
  const auto half = [&rng] {
    return static_cast<uint32_t>(0x3b80 + rng.in(0, 0x47f) + (rng.one_in(2) ? 0x8000 : 0));
  };
  for (std::vector<uint32_t>* operand : {&a, &b}) {
    for (uint32_t& x : *operand) {
      x = half();
      x |= half() << 16;
    }
  }
  const auto value = [](uint32_t dword, bool odd) {
    const uint32_t bits = odd ? dword & 0xffff0000u : dword << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
  };
  const Counters before = thread_counters();
  const std::vector<uint32_t> c = run_gemm(Op::kTdpbf16ps, a, b);
  expect_counts(thread_counters() - before, 2);
  int differ_from_one_chain = 0;
  for (size_t m = 0; m < kM; ++m) {
    for (size_t n = 0; n < kN; ++n) {
      float sum = 0, chain = 0;
      for (size_t tile = 0; tile < kK4; tile += 16) {
        float even = 0, odd = 0;
        for (size_t k = tile; k < tile + 16; ++k) {
          const uint32_t x = a[m * kK4 + k], y = b[k * kN + n];
          even = std::fma(value(x, false), value(y, false), even);
          odd = std::fma(value(x, true), value(y, true), odd);
          chain = std::fma(value(x, false), value(y, false), chain);
          chain = std::fma(value(x, true), value(y, true), chain);
        }
        sum += even + odd;
      }
      uint32_t want, other;
      std::memcpy(&want, &sum, 4);
      std::memcpy(&other, &chain, 4);
      ASSERT_EQ(c[m * kN + n], want) << m << " " << n;
      differ_from_one_chain += want != other;
    }
  }
  EXPECT_GT(differ_from_one_chain, kM * kN / 4) << "the order of additions is seen here";
}

}  // namespace
}  // namespace quern::amx_emu
