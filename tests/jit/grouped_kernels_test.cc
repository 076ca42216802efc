// The kernels of weights in groups alone against plain loops over small integers, where the
// comparison is exact: every shape, kind of weights, zero point and scale, K cut between groups,
// operands between pages that fault, registers poisoned.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "jit/grouped_gemm_amx.h"
#include "jit/grouped_gemm_avx512.h"
#include "tests/jit/amx_fixture.h"
#include "tests/jit/grouped_call.h"
#include "tests/jit/kernel_fixture.h"

namespace quern::jit {
namespace {

using test::Flush;

const GemmEpilogue kLinear{DType::kF32, true, Activation::kNone, true};
constexpr DType kScales[] = {DType::kF16, DType::kBF16, DType::kF32};

/// Without scales: their type is independent of all else and comes in turn.
std::vector<GroupConfig> group_kinds() {
  std::vector<GroupConfig> all;
  for (DType a : {DType::kS8, DType::kBF16}) {
    for (Int4Zeros zeros : {Int4Zeros::kSymmetric, Int4Zeros::kInteger, Int4Zeros::kF32}) {
      all.push_back({.a = a, .zeros = zeros});
    }
  }
  all.push_back({.a = DType::kS8, .zeros = Int4Zeros::kInteger, .wide = true});
  return all;
}

/// Some of 1..groups - 1, ascending.
std::vector<int> cuts_of(int groups, Numbers& numbers) {
  std::vector<int> cuts;
  for (int g = 1; g < groups; ++g) {
    if (numbers.next() % 3 == 0) cuts.push_back(g);
  }
  return cuts;
}

int columns_of(int nr, Numbers& numbers) {
  return 16 * (nr - 1) + 1 + static_cast<int>(numbers.next() % 16);
}

/// The block's own, where the kernel reads what was decoded.
DType codes_of(const GroupedGemmAvx512Config& config) {
  return is_packed(config.b) ? config.b : DType::kU4;
}

class GroupedKernels : public KernelTest {
 protected:
  /// Every kind of weights that go with such rows.
  std::vector<GroupedGemmAvx512Config> weights_of(const GroupConfig& groups) const {
    std::vector<GroupedGemmAvx512Config> all;
    for (DType b :
         {DType::kU4, DType::kU8, DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kE2M1}) {
      for (bool fma : {false, true}) {
        for (int tile_lines : {0, 1, 2, 4, 8}) {
          for (bool vbmi : {true, false}) {
            GroupedGemmAvx512Config config{
                {1, 1, 0, true, kLinear}, b, groups, fma, tile_lines, vbmi};
            if (invalid(config) != nullptr) continue;
            if (groups.a == DType::kBF16 && !fma && !features_.bf16) continue;
            if (is_float8(b) && vbmi && !features_.vbmi) continue;
            all.push_back(config);
          }
        }
      }
    }
    return all;
  }

  void check(const GroupedGemmAvx512Config& config, int groups, int padded, int missing,
             Numbers& numbers) {
    const KernelHandle kernel = make(config);
    ASSERT_NE(kernel, nullptr);
    const int blocks = 1 + static_cast<int>(numbers.next() % 3);
    const GroupedBlock block(config.mr * blocks, config.nr, groups, padded, missing, config.groups,
                             numbers, codes_of(config));
    GroupedCall call(block, config.b, config.fma, 0,
                     numbers.next() % 2 == 0 ? Flush::kEnd : Flush::kStart);
    const int n = columns_of(config.nr, numbers);
    call.args.n = n;
    call.args.blocks = blocks;
    call.args.acc_step = config.mr * config.nr * 64;
    call.run(*kernel, cuts_of(groups, numbers), numbers);
    call.expect(n, kernel->name);
  }
};

TEST_F(GroupedKernels, EveryShapeWeightAndZeroPoint) {
  Numbers numbers(21);
  int kernels = 0;
  for (GroupConfig groups : group_kinds()) {
    for (GroupedGemmAvx512Config config : weights_of(groups)) {
      for (config.mr = 1; config.mr <= 16; ++config.mr) {
        for (config.nr = 1; config.nr <= 4; ++config.nr) {
          const std::vector<int> fetched = prefetches(config.nr);
          config.prefetch = fetched[static_cast<size_t>(kernels) % fetched.size()];
          config.groups.scale = kScales[kernels % 3];
          if (invalid(config) != nullptr) continue;
          ++kernels;
          // With tiles of two and four lines a group is whole turns.
          const int lines = config.tile_lines > 1 ? 4 * (1 + kernels % 3) : 1 + kernels % 11;
          ASSERT_NO_FATAL_FAILURE(check(config, 1 + kernels % 5, 8 * lines, kernels % 8, numbers));
        }
      }
    }
  }
  EXPECT_GT(kernels, features_.bf16 ? 900 : 600);
  RecordProperty("kernels", kernels);
}

// Every number of steps of a group, in the first group, in the last one and in one that is neither.
TEST_F(GroupedKernels, EveryLengthAndNumberOfGroups) {
  Numbers numbers(22);
  for (GroupConfig groups : group_kinds()) {
    for (GroupedGemmAvx512Config config : weights_of(groups)) {
      config.mr = 2;
      config.nr = config.groups.zeros == Int4Zeros::kF32 ? 1 : 2;
      for (int lines = 1; lines <= 17; ++lines) {
        if (config.tile_lines > 1 && lines % 4 != 0) continue;
        for (int count = 0; count <= 4; ++count) {
          config.prefetch = lines % 2 == 0 ? 4 * config.nr : 1;
          ASSERT_NO_FATAL_FAILURE(
              check(config, count, 8 * lines, count == 0 ? 0 : lines % 8, numbers));
        }
      }
    }
  }
}

TEST_F(GroupedKernels, EveryScaleOfEveryZeroPoint) {
  Numbers numbers(23);
  for (GroupConfig groups : group_kinds()) {
    for (const DType scale : kScales) {
      groups.scale = scale;
      for (GroupedGemmAvx512Config config : weights_of(groups)) {
        config.mr = 3;
        config.nr = 2;
        ASSERT_NO_FATAL_FAILURE(check(config, 3, 32, 5, numbers));
      }
    }
  }
}

// Every code in every place of a line, NaNs and infinities too: rows that are 1 at one depth.
TEST_F(GroupedKernels, EveryFloatCodeInEveryPlace) {
  Numbers numbers(26);
  int kernels = 0, nans = 0, infinities = 0;
  for (GroupedGemmAvx512Config config : weights_of({.a = DType::kBF16, .scale = DType::kF32})) {
    if (!is_packed(config.b) || config.b == DType::kU4 || config.tile_lines > 1) continue;
    config.mr = config.tile_lines == 0 ? 8 : 4;
    config.nr = 1;
    ASSERT_EQ(invalid(config), nullptr) << to_string(config);
    const KernelHandle kernel = make(config);
    ++kernels;
    const int codes = 1 << bits_of(config.b);
    for (int first = 0; first < codes; ++first) {
      GroupedBlock block(config.mr, 1, 1, 8, 0, config.groups, numbers, config.b);
      std::fill(block.scale.begin(), block.scale.end(), 1.0f);
      // Rows of a smaller block are at depths 0..3 and 4..7 in turn.
      const int from = first / 2 % 2 * (8 - config.mr);
      for (int m = 0; m < config.mr; ++m) {
        for (int d = 0; d < 8; ++d) block.a_at(m, d) = d == m + from;
      }
      for (int c = 0; c < 16; ++c) {
        for (int d = 0; d < 8; ++d) block.q_at(c, d) = (first + 3 * d + 5 * c) % codes;
      }
      GroupedCall call(block, config.b, config.fma, 0, Flush::kEnd);
      call.args.n = 16;
      call.run(*kernel, {}, numbers);
      for (int m = 0; m < config.mr; ++m) {
        for (int c = 0; c < 16; ++c) {
          const double want = block.value(m, c) + block.bias[static_cast<size_t>(c)] +
                              block.residual[static_cast<size_t>(m * 16 + c)];
          nans += std::isnan(want);
          infinities += std::isinf(want);
          if (std::isnan(want)) {
            ASSERT_TRUE(std::isnan(call.at(m, c))) << kernel->name << " code " << first;
          } else {
            ASSERT_EQ(call.at(m, c), static_cast<float>(want)) << kernel->name << " code " << first;
          }
        }
      }
    }
  }
  EXPECT_GE(kernels, features_.vbmi && features_.bf16 ? 15 : 6);
  EXPECT_GT(nans, 1000);
  EXPECT_GT(infinities, 100);
}

/// Sums of q a and z sum(a) beyond 2^24, whose difference f32 holds: 16,384 columns of 127, codes
/// 15 but for one 14, zero point 15.
GroupedBlock wide_block(const GroupConfig& groups, Numbers& numbers) {
  GroupedBlock block(2, 1, 1, 16384, 0, groups, numbers);
  std::fill(block.a.begin(), block.a.end(), 127);
  std::fill(block.q.begin(), block.q.end(), 15);
  for (int c = 0; c < 16; ++c) block.q_at(c, 1000 * c + 3) = 14;
  std::fill(block.zero.begin(), block.zero.end(), 15.0f);
  return block;
}

TEST_F(GroupedKernels, WideGroupsSubtractIntegers) {
  for (const DType b : {DType::kU4, DType::kU8}) {
    const GroupConfig groups{
        .a = DType::kS8, .scale = DType::kF32, .zeros = Int4Zeros::kInteger, .wide = true};
    const KernelHandle kernel = make(GroupedGemmAvx512Config{{2, 1, 0, true, kLinear}, b, groups});
    Numbers numbers(24);
    const GroupedBlock block = wide_block(groups, numbers);
    GroupedCall call(block, b, false, 0, Flush::kEnd);
    call.args.n = 16;
    call.run(*kernel, {}, numbers);
    call.expect(16, kernel->name);
  }
}

// The largest group there may be and the largest sums: 2^20 columns of 127 and code 15 are
// 1,997,537,280, and 8 sum(a) half as much.
TEST_F(GroupedKernels, SumsOfTheLongestGroupFit) {
  constexpr int kColumns = 1 << 20;
  const GroupConfig groups{.a = DType::kS8, .scale = DType::kF32};
  const KernelHandle kernel =
      make(GroupedGemmAvx512Config{{1, 1, 0, true, {DType::kF32}}, DType::kU4, groups});
  const std::vector<int8_t> a(kColumns, 127);
  const std::vector<uint32_t> panel(size_t{kColumns} * 2, 0xffffffffu);
  const std::vector<float> scale(16, 1.0f);
  const int32_t sum = -8 * 127 * kColumns;
  const float row_scale = 1;
  float acc[16], c[16];
  GemmArgs args;
  args.a = a.data();
  args.b = panel.data();
  args.k = kColumns;
  args.groups = 1;
  args.group_steps = kColumns / 8;
  args.scale = scale.data();
  args.group_sum = &sum;
  args.row_scale = &row_scale;
  args.acc = acc;
  args.c = c;
  args.n = 16;
  kernel->call(args);
  for (const float x : c) ASSERT_EQ(x, static_cast<float>(int64_t{7} * 127 * kColumns));
}

// Where exp(-gate) is nothing beside 1, silu(gate) is the gate itself: the product is exact, and
// shows which panel is which.
TEST_F(GroupedKernels, GateAndUp) {
  Numbers numbers(25);
  for (const GroupConfig& groups : group_kinds()) {
    for (GroupedGemmAvx512Config config : weights_of(groups)) {
      config.mr = config.tile_lines == 0 ? 4 : 2;
      config.nr = 2;
      config.epilogue = {DType::kF32, true, Activation::kSiluMul, false};
      if (invalid(config) != nullptr) continue;
      const KernelHandle kernel = make(config);
      const GroupedBlock block(config.mr, 2, 2, 32, 0, groups, numbers, codes_of(config));
      const std::vector<float> gate_bias(16, 1 << 17), up_bias(16, 3.0f);
      GroupedCall call(block, config.b, config.fma, 0, Flush::kEnd);
      call.args.n = 13;
      call.args.bias = gate_bias.data();
      call.args.bias_up = up_bias.data();
      call.run(*kernel, {1}, numbers);
      for (int m = 0; m < config.mr; ++m) {
        for (int c = 0; c < 13; ++c) {
          const auto gate = static_cast<float>(block.value(m, c) + (1 << 17));
          const auto up = static_cast<float>(block.value(m, 16 + c) + 3);
          ASSERT_GT(gate, 200.0f);
          ASSERT_EQ(call.at(m, c), gate * up) << kernel->name << ' ' << m << ' ' << c;
        }
        ASSERT_EQ(call.at(m, 13), kCanary);
      }
    }
  }
}

/// What tiles multiply: with s8 rows also weights whose zero points are subtracted.
std::vector<GroupConfig> tile_kinds() {
  std::vector<GroupConfig> all = group_kinds();
  for (Int4Zeros zeros : {Int4Zeros::kSymmetric, Int4Zeros::kInteger}) {
    all.push_back({.a = DType::kS8, .zeros = zeros, .subtracted = true});
  }
  return all;
}

DType decoded(const GroupConfig& groups) {
  if (groups.a != DType::kS8) return DType::kBF16;
  return groups.subtracted ? DType::kS8 : DType::kU8;
}

class GroupedAmxKernels : public AmxKernelTest {
 protected:
  void check(const GroupedGemmAmxConfig& config, int rows, int groups, int tiles,
             Numbers& numbers) {
    const KernelHandle kernel = make(config);
    ASSERT_NE(kernel, nullptr);
    const int padded = tiles * config.tile_depth;
    const int missing = groups == 0 ? 0 : static_cast<int>(numbers.next() % 8);
    const GroupedBlock block(rows, config.nr, groups, padded, missing, config.groups, numbers);
    GroupedCall call(block, decoded(config.groups), false, config.tile_depth,
                     numbers.next() % 2 == 0 ? Flush::kEnd : Flush::kStart);
    const int n = columns_of(config.nr, numbers);
    call.args.n = n;
    call.run(*kernel, cuts_of(groups, numbers), numbers);
    call.expect(n, kernel->name);
    ASSERT_EQ(tiles_.store(), TileConfig{}) << "tiles were left configured";
  }

  TileConfigCode tiles_;
};

TEST_F(GroupedAmxKernels, EveryShapeTileAndZeroPoint) {
  Numbers numbers(31);
  int kernels = 0;
  for (const GroupConfig& groups : tile_kinds()) {
    for (int tile_depth = 8; tile_depth <= 64; tile_depth += 8) {
      for (const int mr : {16, 32}) {
        for (int nr = 1; nr <= 64 / mr; ++nr) {
          const int prefetch = nr <= 2 ? kernels % 3 : 0;
          GroupedGemmAmxConfig config{{mr, nr, prefetch, true, kLinear}, groups, tile_depth};
          config.groups.scale = kScales[kernels % 3];
          ASSERT_EQ(invalid(config), nullptr) << to_string(config);
          ++kernels;
          for (const int rows : {mr - 15, mr - static_cast<int>(numbers.next() % 15), mr}) {
            ASSERT_NO_FATAL_FAILURE(
                check(config, rows, 1 + (kernels + rows) % 4, 1 + rows % 3, numbers));
          }
        }
      }
    }
  }
  EXPECT_EQ(kernels, 9 * 8 * (4 + 2));
}

TEST_F(GroupedAmxKernels, EveryNumberOfRowsAndGroups) {
  Numbers numbers(32);
  for (const GroupConfig& groups : tile_kinds()) {
    for (int rows = 1; rows <= 32; ++rows) {
      const GroupedGemmAmxConfig config{
          {rows > 16 ? 32 : 16, 2, 0, true, kLinear}, groups, 8 * (1 + rows % 8)};
      ASSERT_NO_FATAL_FAILURE(check(config, rows, rows % 6, 1 + rows % 2, numbers));
    }
  }
}

// The difference of two sums beyond 2^24, or weights that differ already: the same bits.
TEST_F(GroupedAmxKernels, WideGroupsAndSubtractedZeros) {
  for (const bool subtracted : {false, true}) {
    const GroupConfig groups{.a = DType::kS8,
                             .scale = DType::kF32,
                             .zeros = Int4Zeros::kInteger,
                             .wide = !subtracted,
                             .subtracted = subtracted};
    const KernelHandle kernel = make(GroupedGemmAmxConfig{{16, 1, 0, true, kLinear}, groups, 64});
    Numbers numbers(33);
    const GroupedBlock block = wide_block(groups, numbers);
    GroupedCall call(block, decoded(groups), false, 64, Flush::kEnd);
    call.args.n = 16;
    call.run(*kernel, {}, numbers);
    call.expect(16, kernel->name);
  }
}

// As many dot products as the block has tiles, whatever its groups are.
TEST_F(GroupedAmxKernels, DotProductsAndLoadsAreCounted) {
  if (!emulated()) GTEST_SKIP() << "not run: only the emulator counts";
  Numbers numbers(34);
  for (const GroupConfig& groups : tile_kinds()) {
    const GroupedGemmAmxConfig config{{32, 2, 0, true, kLinear}, groups, 64};
    const KernelHandle kernel = make(config);
    const GroupedBlock block(29, 2, 3, 128, 0, groups, numbers);
    const bool s8 = groups.a == DType::kS8;
    GroupedCall call(block, decoded(groups), false, 64, Flush::kEnd);
    call.args.n = 32;
    const amx_emu::Counters before = amx_emu::thread_counters();
    call.run(*kernel, {}, numbers);
    const amx_emu::Counters c = amx_emu::thread_counters() - before;
    EXPECT_EQ(c.dots(), 4u * 3 * (s8 ? 2 : 4)) << kernel->name;
    EXPECT_EQ(c.loads_per_dot(), 1.0) << kernel->name;
    EXPECT_EQ(c[amx_emu::Op::kLdtilecfg], 1u);
    EXPECT_EQ(c[amx_emu::Op::kTilerelease], 1u);
  }
}

}  // namespace
}  // namespace quern::jit
