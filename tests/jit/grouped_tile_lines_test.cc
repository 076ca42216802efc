// At level amx a few rows of bf16 are multiplied without tiles, by kernels that add as tiles do:
// bit for bit, against the kernel on tiles and against what tdpbf16ps is documented to do.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "jit/grouped_gemm_amx.h"
#include "jit/grouped_gemm_avx512.h"
#include "tests/jit/amx_fixture.h"
#include "tests/jit/grouped_call.h"
#include "tests/support/amx_dot.h"

namespace quern::jit {
namespace {

uint32_t bits_of(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return u;
}

float from_bf16(uint16_t bits) {
  const uint32_t u = uint32_t{bits} << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

/// Where exponents lie decides which of rounding, cancellation, underflow and overflow sums meet.
enum class Fill { kNearOne, kUnderflowing, kSubnormal, kOverflowing, kSpecial, kAnyBits };
constexpr int kFills = 6;

uint16_t element(Fill fill, Numbers& numbers) {
  const auto bits = static_cast<uint16_t>(numbers.next());
  const auto exponent = [&](int from, uint64_t count) {
    const int e = from + static_cast<int>(numbers.next() % count);
    return static_cast<uint16_t>((bits & 0x807f) | e << 7);
  };
  switch (fill) {
    case Fill::kNearOne:
      return exponent(118, 16);
    case Fill::kUnderflowing:  // products about 2^-126, and subnormal elements among them
      return exponent(0, 5);
    case Fill::kSubnormal:
      return exponent(0, 1);
    case Fill::kOverflowing:
      return exponent(246, 9);
    case Fill::kSpecial: {
      const uint16_t special[] = {0x7f80, 0xff80, 0x7fc0, 0x7f81, 0x0000, 0x8000};
      return numbers.next() % 40 == 0 ? special[numbers.next() % 6] : exponent(120, 10);
    }
    case Fill::kAnyBits:
      return bits;
  }
  return 0;
}

/// Of them all, but NaNs and infinities are few.
int any_code(DType codes, Fill fill, Numbers& numbers) {
  const auto code = static_cast<int>(numbers.next() % (1u << bits_of(codes)));
  const bool finite = std::isfinite(float_code(codes, code));
  return finite || (fill == Fill::kSpecial && numbers.next() % 4 == 0) ? code : 0;
}

/// Random operands of one call. Columns are 16 * panels; lengths are as GroupLayout makes them.
struct Random {
  int rows, panels, groups, padded;
  GroupConfig config;
  std::vector<uint16_t> a;   ///< [rows][depth]
  GroupedBlock block;        ///< codes, zero points; its rows are not used
  std::vector<float> scale;  ///< [panel][group][16]
  std::vector<float> sums;   ///< [group][row]

  Random(int m, int nr, int group_count, int group_depth, const GroupConfig& g, Fill fill,
         Numbers& numbers, DType codes = DType::kU4)
      : rows(m),
        panels(nr),
        groups(group_count),
        padded(group_depth),
        config(g),
        block(m, nr, group_count, group_depth, 0, g, numbers, codes) {
    if (codes != DType::kU4) {
      for (int& q : block.q) q = any_code(codes, fill, numbers);
    }
    for (int i = 0; i < rows * depth(); ++i) a.push_back(element(fill, numbers));
    for (int i = 0; i < 16 * panels * groups; ++i) {
      scale.push_back(from_bf16(element(Fill::kNearOne, numbers)));
    }
    for (int i = 0; i < rows * groups; ++i)
      sums.push_back(from_bf16(element(Fill::kNearOne, numbers)));
  }
  int depth() const { return groups * padded; }
};

/// One kernel's C.
std::vector<float> run(const Kernel& kernel, const Random& r, bool tiles, int tile_depth) {
  std::vector<float> wide;
  for (const uint16_t x : r.a) wide.push_back(from_bf16(x));
  const std::vector<uint32_t> packed = r.block.packed();
  const std::vector<uint16_t> pairs = r.block.pairs();
  const std::vector<std::byte> zeros = r.block.zeros(0);
  std::vector<float> c(static_cast<size_t>(r.rows * 16 * r.panels));
  std::vector<float> acc(c.size());
  alignas(64) static thread_local std::byte scratch[kTileScratchBytes];
  uint32_t control[2];
  GemmArgs args;
  args.a = tiles ? static_cast<const void*>(r.a.data()) : wide.data();
  args.a_stride = r.depth() * (tiles ? 2 : 4);
  args.b = tiles ? static_cast<const void*>(pairs.data()) : packed.data();
  const int packed_bits = bits_of(r.block.codes);
  args.panel_stride = r.depth() * (tiles ? 32 : 2 * packed_bits);
  args.k = r.depth();
  args.m = r.rows;
  args.n = 16 * r.panels;
  args.groups = r.groups;
  args.group_steps = tiles ? 2 * r.padded / tile_depth : r.padded * packed_bits / 32;
  args.scale = r.scale.data();
  args.scale_stride = r.groups * 64;
  args.zero = zeros.data();
  args.zero_stride = r.groups * (r.config.zeros == Int4Zeros::kF32 ? 64 : 16);
  args.group_sum = r.sums.data();
  args.group_sum_stride = r.rows * 4;
  args.acc = acc.data();
  args.c = c.data();
  args.c_stride = 64 * r.panels;
  args.control = control;
  args.tiles = scratch;
  kernel.call(args);
  return c;
}

/// The same by the emulator's dot product, tile by tile, and std::fma.
std::vector<float> model(const Random& r, int tile_depth) {
  const std::vector<uint16_t> pairs = r.block.pairs();
  const int columns = tile_depth / 2;
  std::vector<float> c(static_cast<size_t>(r.rows * 16 * r.panels), 0.0f);
  const auto tile_a = std::make_unique<amx_emu::Tile>(), tile_b = std::make_unique<amx_emu::Tile>(),
             tile_c = std::make_unique<amx_emu::Tile>();
  for (int p = 0; p < r.panels; ++p) {
    for (int g = 0; g < r.groups; ++g) {
      std::memset(tile_c.get(), 0, sizeof *tile_c);
      for (int d = g * r.padded; d < (g + 1) * r.padded; d += columns) {
        for (int m = 0; m < r.rows; ++m) {
          std::memcpy(tile_a->row[m], &r.a[static_cast<size_t>(m * r.depth() + d)],
                      static_cast<size_t>(2 * columns));
        }
        for (int line = 0; line < columns / 2; ++line) {
          std::memcpy(tile_b->row[line],
                      &pairs[static_cast<size_t>((p * r.depth() / 2 + d / 2 + line) * 32)], 64);
        }
        amx_emu::dot_portable(amx_emu::Op::kTdpbf16ps,
                              {tile_c.get(), tile_a.get(), tile_b.get(), r.rows, 16, columns / 2});
      }
      for (int m = 0; m < r.rows; ++m) {
        for (int lane = 0; lane < 16; ++lane) {
          float t;
          std::memcpy(&t, &tile_c->row[m][4 * lane], 4);
          if (r.config.zeros == Int4Zeros::kF32) {
            const float z = r.block.zero[static_cast<size_t>((16 * p + lane) * r.groups + g)];
            t = std::fma(-z, r.sums[static_cast<size_t>(g * r.rows + m)], t);
          }
          float& sum = c[static_cast<size_t>((m * r.panels + p) * 16 + lane)];
          sum = std::fma(t, r.scale[static_cast<size_t>((p * r.groups + g) * 16 + lane)], sum);
        }
      }
    }
  }
  return c;
}

void expect_bits(const std::vector<float>& got, const std::vector<float>& want,
                 const std::string& what) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << what << " element " << i;
    } else {
      ASSERT_EQ(bits_of(got[i]), bits_of(want[i]))
          << what << " element " << i << ": " << got[i] << " for " << want[i];
    }
  }
}

class GroupedTileLines : public AmxKernelTest {};

TEST_F(GroupedTileLines, HaveTheBitsOfTiles) {
  Numbers numbers(51);
  int nans = 0, infinities = 0, zeros = 0, subnormals = 0;
  for (const Int4Zeros zero : {Int4Zeros::kSymmetric, Int4Zeros::kInteger, Int4Zeros::kF32}) {
    const GroupConfig config{.a = DType::kBF16, .scale = DType::kF32, .zeros = zero};
    for (const int tile_lines : {1, 2, 4}) {
      // Lines of eight columns; a tile of s8 rows holds twice as many.
      const int tile_depth = 16 * tile_lines;
      for (int round = 0; round < 60 * kFills; ++round) {
        const int rows = 1 + round % 4;
        const int nr = rows <= 2 ? 2 : 1;
        const auto fill = static_cast<Fill>(round % kFills);
        const Random r(rows, nr, 1 + round % 3, tile_depth * (1 + round / 7 % 3), config, fill,
                       numbers);
        const KernelHandle lines = make(GroupedGemmAvx512Config{
            {rows, nr, 0, true, {DType::kF32}}, DType::kU4, config, true, tile_lines});
        const KernelHandle tiles =
            make(GroupedGemmAmxConfig{{16, nr, 0, true, {DType::kF32}}, config, tile_depth});
        const std::vector<float> got = run(*lines, r, false, tile_depth);
        const std::vector<float> want = run(*tiles, r, true, tile_depth);
        ASSERT_NO_FATAL_FAILURE(expect_bits(got, want, lines->name));
        ASSERT_NO_FATAL_FAILURE(expect_bits(got, model(r, tile_depth), lines->name + " (model)"));
        for (const float x : want) {
          nans += std::isnan(x);
          infinities += std::isinf(x);
          zeros += x == 0;
          subnormals += std::fpclassify(x) == FP_SUBNORMAL;
        }
      }
    }
  }
  // What makes the orders differ was there.
  EXPECT_GT(nans, 1000);
  EXPECT_GT(infinities, 1000);
  EXPECT_GT(zeros, 1000);
  EXPECT_GT(subnormals, 100);
}

TEST_F(GroupedTileLines, OfFloatCodesHaveTheBitsOfTiles) {
  Numbers numbers(53);
  const GroupConfig config{.a = DType::kBF16, .scale = DType::kF32};
  for (const DType codes : {DType::kE4M3, DType::kE5M2, DType::kE2M1}) {
    for (const int tile_lines : {1, 2, 4, 8}) {
      const int tile_depth = 2 * tile_lines * 32 / bits_of(codes);
      if (tile_depth > 64 || tile_depth % 8 != 0) continue;
      for (int round = 0; round < 20 * kFills; ++round) {
        const int rows = 1 + round % 4;
        const int nr = rows <= 2 ? 2 : 1;
        const auto fill = static_cast<Fill>(round % kFills);
        const Random r(rows, nr, 1 + round % 3, tile_depth * (1 + round / 7 % 3), config, fill,
                       numbers, codes);
        GroupedGemmAvx512Config of_lines{
            {rows, nr, 0, true, {DType::kF32}}, codes, config, true, tile_lines};
        of_lines.vbmi = features_.vbmi || !is_float8(codes);
        if (invalid(of_lines) != nullptr) continue;
        const KernelHandle lines = make(of_lines);
        const KernelHandle tiles =
            make(GroupedGemmAmxConfig{{16, nr, 0, true, {DType::kF32}}, config, tile_depth});
        const std::vector<float> got = run(*lines, r, false, tile_depth);
        ASSERT_NO_FATAL_FAILURE(expect_bits(got, run(*tiles, r, true, tile_depth), lines->name));
        ASSERT_NO_FATAL_FAILURE(expect_bits(got, model(r, tile_depth), lines->name + " (model)"));
      }
    }
  }
}

// The tests above can tell the orders apart: one chain through the group has other bits.
TEST_F(GroupedTileLines, DifferFromOneChain) {
  Numbers numbers(52);
  const GroupConfig config{.a = DType::kBF16, .scale = DType::kF32};
  int different = 0;
  for (int round = 0; round < 50; ++round) {
    const Random r(1, 1, 1, 64, config, Fill::kNearOne, numbers);
    const GemmConfig shape{1, 1, 0, true, {DType::kF32}};
    const auto chain =
        run(*make(GroupedGemmAvx512Config{shape, DType::kU4, config, true, 0}), r, false, 0);
    const auto tiles =
        run(*make(GroupedGemmAvx512Config{shape, DType::kU4, config, true, 4}), r, false, 0);
    for (size_t i = 0; i < chain.size(); ++i) different += bits_of(chain[i]) != bits_of(tiles[i]);
  }
  EXPECT_GT(different, 50);
}

}  // namespace
}  // namespace quern::jit
