// The two implementations of the dot products against each other, bit by bit.
#include "tests/support/amx_dot.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/support/amx_program.h"
#include "tests/support/rng.h"

namespace quern::amx_emu {
namespace {

using test::Rng;

bool same(uint32_t x, uint32_t y) {
  const auto nan = [](uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; };
  return x == y || (nan(x) && nan(y));
}

uint32_t dword(const Tile& t, int row, int column) {
  uint32_t value;
  std::memcpy(&value, &t.row[row][4 * column], 4);
  return value;
}
void set_dword(Tile& t, int row, int column, uint32_t value) {
  std::memcpy(&t.row[row][4 * column], &value, 4);
}

/// Compares the m x n corner; the rest of a row is nobody's business.
void compare(Op op, const Tile& c, const Tile& a, const Tile& b, int m, int n, int k) {
  Tile portable = c, fast = c;
  dot_portable(op, {&portable, &a, &b, m, n, k});
  dot_avx2(op, {&fast, &a, &b, m, n, k});
  for (int row = 0; row < kMaxRows; ++row) {
    for (int column = 0; column < (row < m ? n : 16); ++column) {
      const uint32_t x = dword(portable, row, column), y = dword(fast, row, column);
      ASSERT_TRUE(row < m && !is_int8_dot(op) ? same(x, y) : x == y)
          << to_string(op) << " " << row << " " << column << std::hex << " " << x << " " << y;
      ASSERT_TRUE(row < m || x == dword(c, row, column)) << "a row outside was written";
    }
  }
}

class AmxDot : public ::testing::TestWithParam<Op> {
 protected:
  void SetUp() override {
    if (!has_avx2()) GTEST_SKIP() << "this CPU has no AVX2";
  }
  Op op() const { return GetParam(); }
};

TEST_P(AmxDot, RandomTilesOfEverySize) {
  Rng rng(7);
  for (int repeat = 0; repeat < 400; ++repeat) {
    Tile t[3];
    for (Tile& tile : t) {
      for (int i = 0; i < 256; ++i) set_dword(tile, i / 16, i % 16, interesting_dword(rng));
    }
    const auto size = [&] { return static_cast<int>(rng.in(1, 16)); };
    compare(op(), t[0], t[1], t[2], size(), size(), size());
    if (HasFatalFailure()) return;
  }
}

/// Sums that end near the smallest normal, cancel, or overflow: exponents of A and B are chosen so
/// that their products lie close to each other and to the borders.
TEST_P(AmxDot, BordersOfTheRange) {
  Rng rng(8);
  for (int repeat = 0; repeat < 400; ++repeat) {
    const bool low = rng.one_in(2);
    const auto half = [&](int center) {
      const int64_t exponent = center + rng.in(-3, 3);
      return static_cast<uint32_t>((exponent & 255) << 7 | rng.in(0, 127) | (rng.one_in(2) << 15));
    };
    Tile c, a, b;
    for (int i = 0; i < 256; ++i) {
      // bf16: products around 2^-127 or 2^127. As fp16 these bits are small or large as well.
      const int at = low ? 64 : 190;
      const uint32_t low_half = half(at), high_half = half(at);
      set_dword(a, i / 16, i % 16, low_half | high_half << 16);
      const uint32_t low_b = half(at), high_b = half(at);
      set_dword(b, i / 16, i % 16, low_b | high_b << 16);
      const auto sign = static_cast<uint32_t>(rng.one_in(2)) << 31;
      set_dword(c, i / 16, i % 16,
                sign | static_cast<uint32_t>(low ? rng.in(0, 0x02000000)
                                                 : rng.in(0x7e000000, 0x7f800000)));
    }
    compare(op(), c, a, b, 16, 16, static_cast<int>(rng.in(1, 16)));
    if (HasFatalFailure()) return;
  }
}

/// Every pair of bytes, or of a sample of halves, as the only product.
TEST_P(AmxDot, EveryPair) {
  for (int x = 0; x < 256; ++x) {
    Tile c{}, a{}, b{};
    for (int i = 0; i < 256; ++i) {
      set_dword(a, i / 16, 0, 0x01010101u * static_cast<uint32_t>(x));
      set_dword(b, 0, i % 16, 0);
    }
    for (int block = 0; block < 16; ++block) {
      for (int n = 0; n < 16; ++n) {
        set_dword(b, 0, n, 0x01010101u * static_cast<uint32_t>(16 * block + n));
      }
      compare(op(), c, a, b, 1, 16, 1);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, AmxDot,
                         ::testing::Values(Op::kTdpbssd, Op::kTdpbsud, Op::kTdpbusd, Op::kTdpbuud,
                                           Op::kTdpbf16ps, Op::kTdpfp16ps),
                         [](const auto& op) { return std::string(to_string(op.param)); });

}  // namespace
}  // namespace quern::amx_emu
