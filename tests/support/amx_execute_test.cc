// Tiles small enough to compute by hand; the numbers below are literals on purpose.
#include "tests/support/amx_execute.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/amx_code.h"
#include "tests/support/amx_dot.h"

namespace quern::amx_emu {
namespace {

TileState configured(const Config& config) {
  TileState s{};
  EXPECT_EQ(load_config(s, config.bytes), nullptr);
  return s;
}

void set_dword(TileState& s, int tile, int row, int column, uint32_t value) {
  std::memcpy(&s.tile[tile].row[row][4 * column], &value, 4);
}
uint32_t dword(const TileState& s, int tile, int row, int column) {
  uint32_t value;
  std::memcpy(&value, &s.tile[tile].row[row][4 * column], 4);
  return value;
}

/// All tests of arithmetic run on both implementations.
class AmxArithmetic : public ::testing::TestWithParam<DotPath> {
 protected:
  void SetUp() override {
    if (GetParam() == DotPath::kAvx2 && !has_avx2()) GTEST_SKIP() << "this CPU has no AVX2";
  }

  /// C (1 x 1) += A (1 x k dwords) B (k x 1 dwords), from c.
  uint32_t dot(Op op, uint32_t c, const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
    const int k = static_cast<int>(a.size());
    TileState s = configured(Config().tile(0, 1, 4).tile(1, 1, 4 * k).tile(2, k, 4));
    set_dword(s, 0, 0, 0, c);
    for (int i = 0; i < k; ++i) {
      set_dword(s, 1, 0, i, a[static_cast<size_t>(i)]);
      set_dword(s, 2, i, 0, b[static_cast<size_t>(i)]);
    }
    EXPECT_FALSE(execute(s, make_dot(op, 0, 1, 2), GetParam()));
    return dword(s, 0, 0, 0);
  }
  float dot(Op op, float c, const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
    return std::bit_cast<float>(dot(op, std::bit_cast<uint32_t>(c), a, b));
  }
};

TEST_P(AmxArithmetic, Int8InItsFourSignForms) {
  // Bytes, lowest first: a = 01 80 ff 7f, b = 02 ff 80 81.
  //   signed a    1 -128   -1  127     unsigned a  1 128 255 127
  //   signed b    2   -1 -128 -127     unsigned b  2 255 128 129
  const std::vector<uint32_t> a = {0x7fff8001}, b = {0x8180ff02};
  EXPECT_EQ(dot(Op::kTdpbssd, 0u, a, b), static_cast<uint32_t>(2 + 128 + 128 - 16129));
  EXPECT_EQ(dot(Op::kTdpbsud, 0u, a, b), static_cast<uint32_t>(2 - 32640 - 128 + 16383));
  EXPECT_EQ(dot(Op::kTdpbusd, 0u, a, b), static_cast<uint32_t>(2 - 128 - 32640 - 16129));
  EXPECT_EQ(dot(Op::kTdpbuud, 0u, a, b), static_cast<uint32_t>(2 + 32640 + 32640 + 16383));
}

TEST_P(AmxArithmetic, Int8WrapsAndNeverSaturates) {
  const std::vector<uint32_t> ones = {0x01010101};
  EXPECT_EQ(dot(Op::kTdpbssd, 0x7fffffffu, ones, ones), 0x80000003u);
  EXPECT_EQ(dot(Op::kTdpbuud, 0xffffffffu, ones, ones), 3u);
  EXPECT_EQ(dot(Op::kTdpbssd, 0x80000000u, ones, {0xffffffff}), 0x7ffffffcu);
  // Pairs that saturate in 16 bits (vpmaddubsw): 255 * 127 twice.
  EXPECT_EQ(dot(Op::kTdpbusd, 0u, {0xffffffff}, {0x7f7f7f7f}), 4u * 255 * 127);
  EXPECT_EQ(dot(Op::kTdpbssd, 0u, {0x80808080}, {0x80808080}), 4u * 128 * 128);
}

// bf16 and fp16 pairs: the even element is the low half.
constexpr uint32_t pair(uint32_t even, uint32_t odd) {
  return even | odd << 16;
}
constexpr uint32_t kBf1 = 0x3f80, kBfMinus1 = 0xbf80;
constexpr uint32_t kBf2p24 = 0x4b80;  // 2^24
constexpr uint32_t kBf2m24 = 0x3380;  // 2^-24
constexpr uint32_t kBfMin = 0x0080;   // 2^-126, the smallest normal
constexpr uint32_t kBfMax = 0x7f7f;
constexpr uint32_t kBfInf = 0x7f80, kBfNan = 0x7fc0, kBfSignallingNan = 0x7f81;
constexpr uint32_t kBfDenormal = 0x007f;

TEST_P(AmxArithmetic, Bf16SumsEvenAndOddApartAndAddsCLast) {
  const Op op = Op::kTdpbf16ps;
  EXPECT_EQ(dot(op, 1.0f, {pair(0x4000, 0x4040)}, {pair(0x4080, 0x40a0)}), 24.0f);  // 1 + 2*4 + 3*5
  // Even: 2^24 + 1 = 2^24 (a tie, to even), then - 2^24 = 0. With the odd 1 in the same sum the
  // result would be 2 or 0.
  const std::vector<uint32_t> even_first = {pair(kBf2p24, kBf1), pair(kBf1, 0),
                                            pair(0xcb80, 0)};  // -2^24
  const std::vector<uint32_t> ones(3, pair(kBf1, kBf1));
  EXPECT_EQ(dot(op, 0.0f, even_first, ones), 1.0f);
  // C last: (2^24 + 1) + -2^24 from C loses the 1, C chained first keeps it.
  EXPECT_EQ(dot(op, -0x1p24f, {pair(kBf2p24, 0), pair(kBf1, 0)}, {pair(kBf1, 0), pair(kBf1, 0)}),
            0.0f);
  // k ascending: 2^24 + 1 + 1 stays 2^24, 1 + 1 + 2^24 does not.
  EXPECT_EQ(dot(op, 0.0f, {pair(kBf2p24, 0), pair(kBf1, 0), pair(kBf1, 0)}, ones), 0x1p24f);
  EXPECT_EQ(dot(op, 0.0f, {pair(kBf1, 0), pair(kBf1, 0), pair(kBf2p24, 0)}, ones), 0x1p24f + 2);
}

TEST_P(AmxArithmetic, Bf16MultipliesAndAddsInOneRounding) {
  // (1 + 2^-7)^2 = 1 + 2^-6 + 2^-14, minus (1 + 2^-6): a product rounded to bf16 would give 0. And
  // 1 + 2^-24 + 2^-48: exact sums of three terms round up only where the last one is still there.
  EXPECT_EQ(dot(Op::kTdpbf16ps, -1.015625f, {pair(0x3f81, 0)}, {pair(0x3f81, 0)}), 0x1p-14f);
  EXPECT_EQ(
      dot(Op::kTdpbf16ps, 0.0f, {pair(kBf1, 0), pair(kBf2m24, 0)}, {pair(kBf1, 0), pair(kBf1, 0)}),
      1.0f);  // a tie, to even
  EXPECT_EQ(
      dot(Op::kTdpbf16ps, 0.0f, {pair(kBf1, 0), pair(0x3381, 0)}, {pair(kBf1, 0), pair(kBf1, 0)}),
      1.0f + 0x1p-23f);  // just above it
}

TEST_P(AmxArithmetic, Bf16FlushesDenormals) {
  const Op op = Op::kTdpbf16ps;
  const uint32_t kHalf = 0x3f00;
  EXPECT_EQ(dot(op, 0.0f, {pair(kBfDenormal, 0)}, {pair(kBfMax, 0)}), 0.0f);  // an operand
  EXPECT_EQ(dot(op, 0u, {pair(kBfMin, 0)}, {pair(kHalf, 0)}), 0u);            // a result
  EXPECT_EQ(dot(op, 0u, {pair(kBfMin, 0)}, {pair(kBf1, 0)}), 0x00800000u);    // not this one
  // C itself, and the sum of C and the product: 1.5 * 2^-126 - 2^-126.
  EXPECT_EQ(dot(op, 0x007fffffu, {pair(kBf1, 0)}, {pair(kBf1, 0)}), 0x3f800000u);
  EXPECT_EQ(dot(op, 0x807fffffu, {0}, {0}), 0u);
  EXPECT_EQ(dot(op, 0x80800000u, {pair(0x00c0, 0)}, {pair(kBf1, 0)}), 0u);
  // A product far below the normal range still counts in a sum that is normal:
  // 2^-126 * 2^-2 added to 1.5 * 2^-126 gives 1.75 * 2^-126.
  EXPECT_EQ(dot(op, 0u, {pair(0x00c0, 0), pair(kBfMin, 0)}, {pair(kBf1, 0), pair(0x3e80, 0)}),
            0x00e00000u);
}

TEST_P(AmxArithmetic, TininessIsJudgedAfterRounding) {
  // Products of two bf16 with 16 significant bits cannot come near enough to 2^-126; a sum can:
  // 2^-126 - 2^-151 rounds (to even) to 2^-126, 2^-126 - 2^-150 is exact and tiny.
  const uint32_t kMinus2m76 = 0x9980;  // -2^-76
  const auto sum = [&](uint32_t small) {
    return dot(Op::kTdpbf16ps, 0u, {pair(kBfMin, 0), pair(kMinus2m76, 0)},
               {pair(kBf1, 0), pair(small, 0)});
  };
  EXPECT_EQ(sum(0x1a00), 0x00800000u);  // 2^-75: 2^-126 - 2^-151
  EXPECT_EQ(sum(0x1a01), 0u);           // a little more is taken away
  EXPECT_EQ(sum(0x1a80), 0u);           // 2^-74: 2^-126 - 2^-150
}

TEST_P(AmxArithmetic, ZerosKeepTheirRules) {
  // -0 + (+0) is +0: the sums begin with +0.
  EXPECT_EQ(dot(Op::kTdpbf16ps, 0x80000000u, {pair(0x8000, 0x8000)}, {pair(kBf1, kBf1)}), 0u);
}

TEST_P(AmxArithmetic, InfinitiesAndNans) {
  const Op op = Op::kTdpbf16ps;
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(dot(op, 0.0f, {pair(kBfInf, 0)}, {pair(kBf1, 0)}), inf);
  EXPECT_EQ(dot(op, 0.0f, {pair(kBfInf, 0)}, {pair(kBfMinus1, 0)}), -inf);
  EXPECT_EQ(dot(op, 0.0f, {pair(kBfMax, 0)}, {pair(kBfMax, 0)}), inf);   // overflow
  EXPECT_EQ(dot(op, 0u, {pair(kBfInf, 0)}, {pair(0, 0)}), 0xffc00000u);  // inf * 0
  EXPECT_EQ(dot(op, 0u, {pair(kBfInf, 0)}, {pair(kBfDenormal, 0)}), 0xffc00000u);
  EXPECT_EQ(dot(op, 0u, {pair(kBfInf, kBfInf)}, {pair(kBf1, kBfMinus1)}), 0xffc00000u);
  EXPECT_EQ(dot(op, 0u, {pair(kBfNan, 0)}, {pair(kBf1, 0)}), 0x7fc00000u);
  EXPECT_EQ(dot(op, 0u, {pair(kBfSignallingNan, 0)}, {pair(kBf1, 0)}), 0x7fc10000u);  // quiet now
  EXPECT_TRUE(std::isnan(dot(op, std::nanf(""), {pair(kBf1, 0)}, {pair(kBf1, 0)})));
}

TEST_P(AmxArithmetic, Fp16) {
  const Op op = Op::kTdpfp16ps;
  constexpr uint32_t k1 = 0x3c00, k2 = 0x4000, k3 = 0x4200, kMax = 0x7bff, kDenormal = 0x0001;
  EXPECT_EQ(dot(op, 1.0f, {pair(k2, k3)}, {pair(k3, k2)}), 13.0f);
  EXPECT_EQ(dot(op, 0.0f, {pair(kMax, 0)}, {pair(kMax, 0)}), 65504.0f * 65504.0f);
  // fp16 denormals are numbers: 2^-24 each.
  EXPECT_EQ(dot(op, 0.0f, {pair(kDenormal, 0)}, {pair(k1, 0)}), 0x1p-24f);
  EXPECT_EQ(dot(op, 0.0f, {pair(kDenormal, 0x83ff)}, {pair(kDenormal, k1)}),
            -1023 * 0x1p-24f + 0x1p-48f);
  EXPECT_EQ(dot(op, 0x007fffffu, {0}, {0}), 0u);  // fp32 denormals are not
  EXPECT_EQ(dot(op, 0.0f, {pair(0x7c00, 0)}, {pair(k1, 0)}),
            std::numeric_limits<float>::infinity());
  EXPECT_EQ(dot(op, 0u, {pair(0x7c00, 0)}, {pair(0, 0)}), 0xffc00000u);
  EXPECT_EQ(dot(op, 0u, {pair(0x7c01, 0)}, {pair(k1, 0)}), 0x7fc02000u);  // quiet now
  // Even and odd apart, C last: 2^24 (as 4096 * 4096), 1 and -2^24.
  const std::vector<uint32_t> a = {pair(0x6c00, k1), pair(k1, 0), pair(0xec00, 0)};
  const std::vector<uint32_t> b = {pair(0x6c00, k1), pair(k1, 0), pair(0x6c00, 0)};
  EXPECT_EQ(dot(op, 0.0f, a, b), 1.0f);
}

TEST_P(AmxArithmetic, MxcsrIsNeitherReadNorWritten) {
  const uint32_t before = __builtin_ia32_stmxcsr();
  // Round up, flush nothing, a sticky flag set, denormals are zero in the other direction.
  for (const uint32_t mxcsr : {0x1f80u | 0x4000u, 0x1f80u | 0x2001u, 0x1f80u | 0x6000u | 0x8040u}) {
    __builtin_ia32_ldmxcsr(mxcsr);
    const uint32_t tie = dot(Op::kTdpbf16ps, 0x3f800000u, {pair(kBf2m24, 0)}, {pair(kBf1, 0)});
    const uint32_t tiny = dot(Op::kTdpbf16ps, 0u, {pair(kBfMin, 0)}, {pair(0x3f00, 0)});
    const uint32_t after = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before);
    EXPECT_EQ(after, mxcsr);
    EXPECT_EQ(tie, 0x3f800000u);
    EXPECT_EQ(tiny, 0u);
  }
}

TEST_P(AmxArithmetic, ZeroesWhatIsOutsideTheDestination) {
  TileState s = configured(Config().tile(0, 2, 8).tile(1, 2, 4).tile(2, 1, 8));
  std::memset(s.tile, 0x55, sizeof s.tile);
  ASSERT_FALSE(execute(s, make_dot(Op::kTdpbssd, 0, 1, 2), GetParam()));
  for (int row = 0; row < kMaxRows; ++row) {
    for (int column = 0; column < 16; ++column) {
      const bool inside = row < 2 && column < 2;
      const uint32_t want = inside ? 0x55555555u + 4 * 0x55 * 0x55 : 0;
      ASSERT_EQ(dword(s, 0, row, column), want) << row << " " << column;
    }
  }
  for (const int tile : {1, 2, 3}) {  // the sources and the others are as they were
    for (int column = 0; column < 16; ++column) ASSERT_EQ(dword(s, tile, 15, column), 0x55555555u);
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, AmxArithmetic,
                         ::testing::Values(DotPath::kPortable, DotPath::kAvx2),
                         [](const auto& path) {
                           return std::string(path.param == DotPath::kAvx2 ? "avx2" : "portable");
                         });

TEST(AmxExecute, LoadZeroesColumnsAndRowsOutside) {
  TileState s = configured(Config().tile(3, 3, 12));
  std::memset(s.tile, 0x55, sizeof s.tile);
  uint8_t memory[64];
  for (int i = 0; i < 64; ++i) memory[i] = static_cast<uint8_t>(i + 1);
  ASSERT_FALSE(execute(s, make_move(Op::kTileloadd, 3, memory, 20)));
  for (int row = 0; row < kMaxRows; ++row) {
    for (int column = 0; column < kMaxRowBytes; ++column) {
      const int want = row < 3 && column < 12 ? 20 * row + column + 1 : 0;
      ASSERT_EQ(s.tile[3].row[row][column], want) << row << " " << column;
    }
  }
  EXPECT_EQ(s.tile[2].row[0][0], 0x55);
  EXPECT_EQ(s.written, 1u << 3);
}

TEST(AmxExecute, StoreWritesTheConfiguredBytesOnly) {
  TileState s = configured(Config().tile(5, 2, 8));
  std::memset(s.tile, 0x77, sizeof s.tile);
  uint8_t memory[48] = {};
  // A negative distance: row 1 lies below row 0.
  ASSERT_FALSE(execute(s, make_move(Op::kTilestored, 5, memory + 20, static_cast<uint64_t>(-16))));
  for (int i = 0; i < 48; ++i) {
    const bool inside = (i >= 20 && i < 28) || (i >= 4 && i < 12);
    ASSERT_EQ(memory[i], inside ? 0x77 : 0) << i;
  }
}

TEST(AmxExecute, StartRowIsUsedAndReset) {
  TileState s = configured(Config().all(4, 4).start_row(2));
  std::memset(s.tile, 0x55, sizeof s.tile);
  const uint32_t memory[4] = {10, 11, 12, 13};
  ASSERT_FALSE(execute(s, make_move(Op::kTileloadd, 0, memory, 4)));
  EXPECT_EQ(dword(s, 0, 0, 0), 0x55555555u);  // loaded before the interruption
  EXPECT_EQ(dword(s, 0, 1, 0), 0x55555555u);
  EXPECT_EQ(dword(s, 0, 2, 0), 12u);
  EXPECT_EQ(dword(s, 0, 3, 0), 13u);
  EXPECT_EQ(dword(s, 0, 4, 0), 0u);
  EXPECT_EQ(s.start_row, 0);

  s.start_row = 3;
  uint32_t out[4] = {};
  ASSERT_FALSE(execute(s, make_move(Op::kTilestored, 0, out, 4)));
  EXPECT_EQ(out[2], 0u);
  EXPECT_EQ(out[3], 13u);
  EXPECT_EQ(s.start_row, 0);

  s.start_row = 3;
  ASSERT_FALSE(execute(s, make_zero(1)));
  EXPECT_EQ(s.start_row, 0);
  s = configured(Config().tile(0, 1, 4).tile(1, 1, 4).tile(2, 1, 4).start_row(9));
  ASSERT_FALSE(execute(s, make_dot(Op::kTdpbssd, 0, 1, 2)));  // no rule about start_row here
  EXPECT_EQ(s.start_row, 0);
}

TEST(AmxExecute, TilezeroClearsTheWholeRegister) {
  TileState s = configured(Config().all(2, 8));
  std::memset(s.tile, 0x55, sizeof s.tile);
  ASSERT_FALSE(execute(s, make_zero(6)));
  for (int row = 0; row < kMaxRows; ++row) {
    for (int column = 0; column < 16; ++column) ASSERT_EQ(dword(s, 6, row, column), 0u);
  }
  EXPECT_EQ(dword(s, 5, 0, 0), 0x55555555u);
  EXPECT_EQ(dword(s, 7, 15, 15), 0x55555555u);
}

TEST(AmxExecute, ConfigurationGoesInAndOut) {
  Config config;
  for (int t = 0; t < kTiles; ++t) config.tile(t, t + 1, 4 * (t + 1));
  config.tile(7, 0, 0).start_row(5);
  TileState s{};
  std::memset(s.tile, 0x55, sizeof s.tile);
  ASSERT_FALSE(execute(s, make_config(Op::kLdtilecfg, config.bytes)));
  for (const Tile& t : s.tile) {
    for (const auto& row : t.row) ASSERT_EQ(row[63], 0);  // and all the data is gone
  }
  EXPECT_EQ(s.rows[6], 7);
  EXPECT_EQ(s.colsb[6], 28);
  EXPECT_FALSE(s.valid(7));
  uint8_t out[kConfigBytes];
  ASSERT_FALSE(execute(s, make_config(Op::kSttilecfg, out)));
  EXPECT_EQ(std::memcmp(out, config.bytes, kConfigBytes), 0);

  ASSERT_FALSE(execute(s, make_release()));
  EXPECT_FALSE(s.configured());
  std::memset(out, 0xff, sizeof out);
  ASSERT_FALSE(execute(s, make_config(Op::kSttilecfg, out)));
  for (const uint8_t b : out) ASSERT_EQ(b, 0);
}

TEST(AmxExecute, PaletteZeroReleases) {
  TileState s = configured(Config().all(1, 4));
  uint8_t junk[kConfigBytes];
  std::memset(junk, 0xff, sizeof junk);
  junk[0] = 0;  // the rest is not looked at
  ASSERT_FALSE(execute(s, make_config(Op::kLdtilecfg, junk)));
  EXPECT_FALSE(s.configured());
}

TEST(AmxExecute, WorkIsCountedAtTheConfiguredSizes) {
  TileState s = configured(Config().tile(0, 3, 20).tile(1, 3, 8).tile(2, 2, 20));
  const Work load = work_of(s, make_move(Op::kTileloadd, 0, nullptr, 64));
  EXPECT_EQ(load.bytes_loaded, 60u);
  EXPECT_EQ(load.bytes_stored, 0u);
  s.start_row = 1;
  EXPECT_EQ(work_of(s, make_move(Op::kTilestored, 0, nullptr, 64)).bytes_stored, 40u);
  const Work int8 = work_of(s, make_dot(Op::kTdpbuud, 0, 1, 2));
  EXPECT_EQ(int8.macs_useful, 3u * 5 * 8);
  EXPECT_EQ(int8.macs_issued, 16u * 16 * 64);
  const Work bf16 = work_of(s, make_dot(Op::kTdpbf16ps, 0, 1, 2));
  EXPECT_EQ(bf16.macs_useful, 3u * 5 * 4);
  EXPECT_EQ(bf16.macs_issued, 16u * 16 * 32);
  EXPECT_EQ(work_of(s, make_dot(Op::kTdpbuud, 0, 2, 1)).macs_useful, 0u);  // faults
}

}  // namespace
}  // namespace quern::amx_emu
