#include "ops/blocking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "jit/grouped_gemm_avx512.h"
#include "ops/checked.h"

namespace quern {
namespace {

TEST(SplitRange, PartsAreContiguousCoverEverythingAndDifferByAtMostOne) {
  for (int64_t total = 0; total <= 40; ++total) {
    for (int64_t parts = 1; parts <= 17; ++parts) {
      int64_t at = 0;
      for (int64_t i = 0; i < parts; ++i) {
        const Range r = split_range(total, parts, i);
        EXPECT_EQ(r.begin, at);
        EXPECT_GE(r.size(), total / parts);
        EXPECT_LE(r.size(), total / parts + 1);
        at = r.end;
      }
      EXPECT_EQ(at, total);
    }
  }
}

TEST(ChooseGrid, FitsTheThreadsAndBeatsEveryOtherGrid) {
  for (int threads : {1, 2, 3, 7, 16, 64}) {
    for (int64_t m : {1, 2, 5, 16, 100, 1024}) {
      for (int64_t units : {1, 4, 5, 64, 1000}) {
        const ThreadGrid grid = choose_grid(m, units, threads);
        ASSERT_GE(grid.m_parts, 1);
        ASSERT_GE(grid.n_parts, 1);
        ASSERT_LE(grid.m_parts * grid.n_parts, threads);
        const auto share = [&](int mp, int np) {
          return (m + mp - 1) / mp * ((units + np - 1) / np);
        };
        for (int mp = 1; mp <= threads; ++mp) {
          for (int np = 1; mp * np <= threads; ++np) {
            ASSERT_LE(share(grid.m_parts, grid.n_parts), share(mp, np)) << m << ' ' << units;
          }
        }
      }
    }
  }
}

TEST(ChooseGrid, DecodeCutsColumnsOnly) {
  const ThreadGrid grid = choose_grid(1, 1024, 16);
  EXPECT_EQ(grid.m_parts, 1);
  EXPECT_EQ(grid.n_parts, 16);
}

TEST(ChooseGrid, HugeShapesDoNotOverflow) {
  const ThreadGrid grid = choose_grid(int64_t{1} << 47, int64_t{1} << 44, 8);
  EXPECT_EQ(grid.m_parts * grid.n_parts, 8);
}

TEST(DefaultBlocking, IsLegalForEveryShape) {
  for (int bytes : {1, 2}) {
    for (int panel_registers : {1, 2}) {
      for (int flags = 0; flags < 32; ++flags) {
        for (int64_t k : {0, 1, 63, 64, 4096, 17408, 131072, 1 << 24}) {
          GemmFacts facts{.k = k, .a_bytes = bytes, .weight_bits = 8 * bytes};
          facts.panel_registers = panel_registers;
          facts.other_registers = panel_registers == 1 ? 1 : 4;
          facts.wide = (flags & 1) != 0;
          facts.pairs = (flags & 2) != 0;
          facts.row_step = (flags & 4) != 0 ? 16 : 1;
          facts.half_width = (flags & 8) != 0 && !facts.tiles();
          facts.far_prefetch = (flags & 16) != 0;
          for (int64_t m : {1, 2, 6, 7, 9, 10, 14, 15, 16, 17, 32, 33, 64, 1000, 1 << 20}) {
            const GemmBlocking b = default_blocking(facts, m);
            EXPECT_EQ(invalid(b, facts), nullptr) << k << ' ' << m << ' ' << flags;
          }
        }
      }
    }
  }
}

// Every load serves two dots at least.
TEST(DefaultBlocking, ZenHasNoBlockOfOnePanel) {
  GemmFacts facts{.k = 4096, .a_bytes = 1, .weight_bits = 8};
  EXPECT_EQ(default_blocking(facts, 16).nr, 1);
  EXPECT_EQ(default_blocking(facts, 4).prefetch_bytes, 1024);
  for (const bool half_width : {false, true}) {
    facts.half_width = half_width;
    facts.far_prefetch = !half_width;
    for (const int64_t m : {15, 16}) {
      const GemmBlocking b = default_blocking(facts, m);
      EXPECT_TRUE(b.nr == 2 && b.mr == 8 && b.mc >= m && b.kc == 0) << "weights pass once";
    }
  }
  EXPECT_EQ(default_blocking(facts, 4).prefetch_bytes, 0);
  EXPECT_NE(default_blocking(facts, 8).prefetch_bytes, 0);
}

// What is on its way in all streams together is the machine's, not the block's.
TEST(DefaultBlocking, BytesOnTheirWay) {
  GemmFacts facts{.k = 4096, .a_bytes = 2, .weight_bits = 16};
  for (const bool far : {false, true}) {
    facts.far_prefetch = far;
    for (const int64_t m : {1, 4, 6, 7, 9, 10, 14}) {
      const GemmBlocking b = default_blocking(facts, m);
      const int bytes = b.prefetch_bytes * b.nr;
      EXPECT_LE(bytes, far ? 8192 : 4096) << m;
      EXPECT_GT(bytes, far ? 8192 - 64 * b.nr : 4096 - 64 * b.nr) << m;
    }
  }
}

// Whole tiles that follow one another, but for the end of the last one; as many as the rows have.
TEST(RowBlock, TilesOfEveryNumberOfRows) {
  for (const int mr : {16, 32}) {
    for (int64_t rows = 1; rows <= 200; ++rows) {
      const RowBlocks blocks(rows, mr, 16);
      int64_t end = 0, tiles = 0;
      for (int64_t i = 0; i < blocks.count(); ++i) {
        const Range r = blocks.at(i);
        ASSERT_EQ(r.begin, end) << mr << ' ' << rows;
        ASSERT_GT(r.size(), 0);
        ASSERT_LE(r.size(), mr);
        ASSERT_TRUE(r.size() % 16 == 0 || i + 1 == blocks.count()) << mr << ' ' << rows;
        tiles += (r.size() + 15) / 16;
        end = r.end;
      }
      EXPECT_EQ(end, rows);
      EXPECT_EQ(tiles, (rows + 15) / 16);
    }
  }
  EXPECT_EQ(RowBlocks(7, 4, 1).at(0).size(), 4);
  EXPECT_EQ(RowBlocks(7, 4, 1).at(1).size(), 3);
}

TEST(SplitSteps, PiecesOfTiles) {
  for (int64_t total = 0; total <= 100; ++total) {
    for (int parts = 1; parts <= 7; ++parts) {
      int64_t end = 0;
      for (int i = 0; i < parts; ++i) {
        const Range r = split_steps(total, 16, parts, i);
        ASSERT_EQ(r.begin, end);
        ASSERT_TRUE(r.end % 16 == 0 || r.end == total);
        end = r.end;
      }
      ASSERT_EQ(end, total);
    }
  }
}

TEST(DefaultBlocking, UpToSixteenRowsPassWeightsOnce) {
  for (int64_t m = 1; m <= 16; ++m) {
    EXPECT_GE(default_blocking({.k = 4096}, m).mr, m);
    EXPECT_EQ(default_blocking({.k = 4096}, m).kc, 0);
  }
}

// Two chunks of weights in half of 1 MiB, and no second pass over the weights for a few rows more.
TEST(DefaultBlocking, PrefillFitsL2AndPassesWeightsOnce) {
  for (int bytes : {1, 2}) {
    for (int64_t k : {512, 4096, 5120, 17408}) {
      for (int64_t m : {17, 64, 72, 73, 145, 256, 576}) {
        const GemmBlocking b =
            default_blocking({.k = k, .a_bytes = bytes, .weight_bits = 8 * bytes}, m);
        const int64_t depth = b.kc == 0 ? k : b.kc;
        EXPECT_LE(depth * b.nc * bytes, (256 << 10) * 3 / 2);
        EXPECT_GE(b.mc, m);
      }
    }
  }
}

// Rows of A are read again for every chunk of weights: from L2 while a block of them fits. Where it
// does not, each chunk serves many rows at least.
TEST(DefaultBlocking, RowsOfTilesStayInL2) {
  for (int bytes : {1, 2}) {
    for (int64_t k = 64; k <= 40000; k += 448) {
      const GemmFacts facts{.k = k, .a_bytes = bytes, .weight_bits = 8 * bytes, .row_step = 16};
      const GemmBlocking b = default_blocking(facts, 1000);
      ASSERT_EQ(b.mc % b.mr, 0) << "k " << k;
      if (b.mr * k * bytes > 1 << 20) {
        ASSERT_EQ(b.mc, 256) << "k " << k;
      } else {
        ASSERT_LE(b.mc * k * bytes, std::max<int64_t>(1 << 20, 64 * k * bytes)) << "k " << k;
        ASSERT_GE(b.mc, 64) << "k " << k;
      }
    }
  }
}

// A short last chunk would be followed by one of which only the first part was fetched.
TEST(DefaultBlocking, KIsCutIntoEqualParts) {
  int cut = 0;
  for (const int row_step : {1, 16}) {
    for (int64_t k = 64; k <= 40000; k += 32) {
      for (const int64_t m : {20, 64}) {
        const GemmFacts facts{.k = k, .a_bytes = 2, .weight_bits = 16, .row_step = row_step};
        const int64_t kc = default_blocking(facts, m).kc;
        if (kc == 0) continue;
        ++cut;
        const int64_t parts = ceil_div(k, kc);
        ASSERT_GT(parts, 1) << "k " << k;
        ASSERT_GT(k - (parts - 1) * kc, kc - 64 * parts) << "k " << k << " in chunks of " << kc;
      }
    }
  }
  EXPECT_GT(cut, 1000);
}

TEST(MaxMr, LeavesRoomForTheOperands) {
  const GemmFacts plain{.k = 1};
  EXPECT_EQ(max_mr(plain, 4), 6);
  EXPECT_EQ(max_mr(plain, 3), 9);
  EXPECT_EQ(max_mr(plain, 2), 14);
  EXPECT_EQ(max_mr(plain, 1), 16);
}

TEST(DefaultBlocking, WideSumsAreCutAtTheContractsMultiple) {
  EXPECT_EQ(default_blocking({.k = 200000, .wide = true}, 1).kc, 65536);
  EXPECT_EQ(default_blocking({.k = 200000, .wide = true}, 100).kc, 65536);
}

TEST(InvalidBlocking, NamesTheBrokenRule) {
  const GemmFacts facts{.k = 4096, .a_bytes = 1, .weight_bits = 8};
  const GemmBlocking good = default_blocking(facts, 64);
  const auto broken = [&](auto change) {
    GemmBlocking b = good;
    change(b);
    return invalid(b, facts) != nullptr;
  };
  EXPECT_TRUE(broken([](auto& b) { b.mr = 0; }));
  EXPECT_TRUE(broken([](auto& b) { b.mr = 10; }));
  EXPECT_TRUE(broken([](auto& b) { b.nr = 0; }));
  EXPECT_TRUE(broken([](auto& b) { b.nr = 5; }));
  EXPECT_TRUE(broken([](auto& b) { b.nr = 4; }));  // 9 rows by 4 panels
  EXPECT_TRUE(broken([](auto& b) { b.nc = 63; }));
  EXPECT_TRUE(broken([](auto& b) { b.mc = 1; }));
  EXPECT_TRUE(broken([](auto& b) { b.mc = INT64_MAX; }));
  EXPECT_TRUE(broken([](auto& b) { b.kc = -64; }));
  EXPECT_TRUE(broken([](auto& b) { b.kc = 100; }));
  EXPECT_TRUE(broken([](auto& b) { b.prefetch_bytes = 1; }));
  EXPECT_TRUE(broken([](auto& b) { b.prefetch_bytes = INT32_MAX; }));
}

// NVFP4: decoded as bf16_gemm reads weights, so that K can be cut anywhere, but need not be.
TEST(DefaultBlocking, DecodedBlocksForTilesAreCutForFewRowsOnly) {
  GemmFacts facts{.k = 4096, .weight_bits = 4, .decoded_bits = 16, .block = 16};
  facts.row_step = 16;
  for (const int64_t m : {1, 16, 17, 64}) {
    const GemmBlocking b = default_blocking(facts, m);
    EXPECT_EQ(b.kc, 128) << m;  // 8 KiB of two panels of bf16
    EXPECT_EQ(invalid(b, facts), nullptr);
  }
  for (const int64_t m : {65, 128, 4096}) EXPECT_EQ(default_blocking(facts, m).kc, 0) << m;
  facts.k = 16384;
  EXPECT_EQ(default_blocking(facts, 128).kc, 4096);
}

TEST(GemmFacts, BlocksAreDecodedInWholeTiles) {
  GemmFacts facts{.k = 4096, .weight_bits = 4, .decoded_bits = 16, .block = 16};
  EXPECT_EQ(facts.decoded_depth(0), 0);
  EXPECT_EQ(facts.decoded_depth(1), 32);
  EXPECT_EQ(facts.decoded_depth(32), 32);
  EXPECT_EQ(facts.decoded_depth(97), 128);
  facts.block = 0;
  EXPECT_EQ(facts.decoded_depth(97), 97);
}

// Weights in groups of K, as int4_gemm and fp8_gemm have them.

/// Groups of `group` columns as packed; the kernel reads what is packed, or with `decoded_bits`
/// what is made of it.
GemmFacts grouped(int64_t k, int64_t group, int a_bytes, int decoded_bits, bool tiles) {
  return {.k = ceil_div(k, group) * group,
          .a_bytes = a_bytes,
          .weight_bits = 4,
          .decoded_bits = decoded_bits,
          .group = group,
          .row_step = tiles ? 16 : 1};
}

std::vector<GemmFacts> grouped_facts() {
  std::vector<GemmFacts> all;
  for (const int64_t k : {8, 64, 4096, 5120, 17408, 131072, 1 << 20}) {
    for (const int64_t group : {8, 24, 32, 64, 128, 1024, 17408, 1 << 20}) {
      for (const bool tiles : {false, true}) {
        for (const int bits : {0, 8, 16}) {
          if (tiles && bits == 0) continue;
          all.push_back(grouped(k, group, bits == 8 ? 1 : 2, bits, tiles));
        }
      }
    }
  }
  return all;
}

TEST(GroupedBlocking, IsLegalAndCutsBetweenGroups) {
  int cut = 0;
  for (GemmFacts facts : grouped_facts()) {
    for (const int flags : {0, 1, 2, 3}) {
      facts.pairs = (flags & 1) != 0;
      facts.accumulators = (flags & 2) != 0 && !facts.decodes() ? 3 : 1;
      for (int64_t m : {1, 2, 3, 4, 5, 7, 15, 16, 17, 32, 33, 64, 1000, 1 << 20}) {
        const GemmBlocking b = default_blocking(facts, m);
        ASSERT_EQ(invalid(b, facts), nullptr) << facts.k << ' ' << facts.group << ' ' << m;
        ASSERT_EQ(b.kc % facts.group, 0) << facts.k << ' ' << facts.group << ' ' << m;
        ASSERT_TRUE(b.kc == 0 || b.kc < facts.k) << facts.k << ' ' << facts.group << ' ' << m;
        cut += b.kc != 0;
      }
    }
  }
  EXPECT_GT(cut, 500);
}

// What is decoded is read again at once: for tiles from L1, else from L2. Up to half as much again
// rather than another cut; one group where not even that fits.
TEST(GroupedBlocking, DecodedChunksFitTheirCache) {
  for (const GemmFacts& facts : grouped_facts()) {
    if (!facts.decodes()) continue;
    const int64_t cache = facts.tiles() ? 8 << 10 : 256 << 10;
    for (int64_t m : {1, 8, 16, 17, 64, 1000}) {
      const GemmBlocking b = default_blocking(facts, m);
      const int64_t depth = b.kc == 0 ? facts.k : b.kc;
      const bool one_group = depth == facts.group;
      ASSERT_TRUE(one_group || b.nr * facts.read_bytes(depth) <= cache * 3 / 2)
          << facts.k << ' ' << facts.group << ' ' << m;
      // And use it: two of them would not.
      if (b.kc != 0) {
        ASSERT_GT(2 * b.nr * facts.read_bytes(depth + facts.group), cache)
            << facts.k << ' ' << facts.group;
      }
    }
  }
}

// W4A16 of 4096 x 4096 in groups of 128: two panels of 128 columns are 8 KiB of bf16.
TEST(GroupedBlocking, DecodedChunksOfAModel) {
  EXPECT_EQ(default_blocking(grouped(4096, 128, 2, 16, true), 64).kc, 128);
  EXPECT_EQ(default_blocking(grouped(4096, 128, 1, 8, true), 64).kc, 256);
  EXPECT_EQ(default_blocking(grouped(4096, 128, 2, 16, true), 16).kc, 128);
  EXPECT_EQ(default_blocking(grouped(4096, 128, 2, 16, true), 16).nr, 2);
  EXPECT_EQ(default_blocking(grouped(4096, 4096, 2, 16, true), 64).kc, 0);
}

TEST(GroupedBlocking, InvalidNamesTheRuleOfGroups) {
  const GemmFacts facts = grouped(4096, 128, 2, 0, false);
  GemmBlocking b = default_blocking(facts, 64);
  b.mc = 64;
  for (const int64_t kc : {64, 192, 127, -128}) {
    b.kc = kc;
    EXPECT_STREQ(invalid(b, facts), "kc must be 0 or whole groups") << kc;
  }
  for (const int64_t kc : {0, 128, 384, 4096}) {
    b.kc = kc;
    EXPECT_EQ(invalid(b, facts), nullptr) << kc;
  }
}

// 32 registers: others, then for each panel its operands, then what is left among the elements.
TEST(MaxMr, SeveralAccumulatorsAnElement) {
  GemmFacts facts{.k = 1};
  facts.accumulators = 3;
  EXPECT_EQ(max_mr(facts, 1), 10);  // (32 - 1 - 1) / 3
  EXPECT_EQ(max_mr(facts, 2), 4);   // (32 - 1 - 2) / 6
  EXPECT_EQ(max_mr(facts, 3), 3);
  EXPECT_EQ(max_mr(facts, 4), 2);
  facts.panel_registers = 4;
  facts.other_registers = 5;
  EXPECT_EQ(max_mr(facts, 1), 7);
  EXPECT_EQ(max_mr(facts, 2), 3);
  EXPECT_EQ(max_mr(facts, 3), 1);
  EXPECT_EQ(max_mr(facts, 4), 0);  // none so wide
  EXPECT_EQ(default_blocking(facts, 4).mr, 7);
  EXPECT_EQ(default_blocking(facts, 3).nr, 2);
}

// The counts that facts are made of are those that the generator has registers for: one row more is
// refused, one less is not.
TEST(MaxMr, IsWhatGroupedKernelsAllow) {
  for (const DType b :
       {DType::kU4, DType::kU8, DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kE2M1}) {
    for (const Int4Zeros zeros : {Int4Zeros::kSymmetric, Int4Zeros::kInteger, Int4Zeros::kF32}) {
      for (const int lines : {-1, 0, 1, 2, 4, 8}) {
        for (const DType a : {DType::kS8, DType::kBF16}) {
          jit::GroupedGemmAvx512Config config;
          config.b = b;
          config.groups = {.a = a, .zeros = zeros};
          config.fma = lines >= 0;
          config.tile_lines = std::max(lines, 0);
          if (invalid(config) != nullptr) continue;
          const jit::GroupedRegisters registers = grouped_registers(config);
          GemmFacts facts{.k = 64};
          facts.panel_registers = registers.panel;
          facts.other_registers = registers.other;
          facts.accumulators = registers.element;
          for (config.nr = 1; config.nr <= 4; ++config.nr) {
            const int most = max_mr(facts, config.nr);
            config.mr = most;
            if (most > 0) {
              EXPECT_EQ(jit::invalid(config), nullptr) << to_string(config);
            }
            config.mr = most + 1;
            EXPECT_NE(jit::invalid(config), nullptr) << to_string(config);
          }
        }
      }
    }
  }
}

TEST(GemmFacts, BytesAsPackedAndAsRead) {
  GemmFacts facts{.k = 4096, .weight_bits = 4};
  EXPECT_FALSE(facts.decodes());
  EXPECT_EQ(facts.packed_bytes(128), 1024);
  EXPECT_EQ(facts.read_bytes(128), 1024);
  EXPECT_EQ(facts.packed_lines_of_a_turn(), 4);
  facts.decoded_bits = 8;
  EXPECT_TRUE(facts.decodes());
  EXPECT_EQ(facts.packed_bytes(128), 1024);
  EXPECT_EQ(facts.read_bytes(128), 2048);
  EXPECT_EQ(facts.packed_lines_of_a_turn(), 2);
  facts.decoded_bits = 16;
  EXPECT_EQ(facts.read_bytes(128), 4096);
  EXPECT_EQ(facts.packed_lines_of_a_turn(), 1);
}

TEST(MBucket, CoversEveryMAndBucketMIsItsLargest) {
  int last = -1;
  for (int64_t m = 1; m <= 5000; ++m) {
    const int bucket = m_bucket(m);
    ASSERT_GE(bucket, last);
    ASSERT_LE(bucket, last + 1);
    ASSERT_LT(bucket, kMBuckets);
    if (bucket + 1 < kMBuckets) {
      ASSERT_LE(m, bucket_m(bucket));
    }
    last = bucket;
  }
  EXPECT_EQ(last, kMBuckets - 1);
  EXPECT_EQ(m_bucket(INT64_MAX), kMBuckets - 1);
  EXPECT_EQ(m_bucket(0), 0);
}

}  // namespace
}  // namespace quern
