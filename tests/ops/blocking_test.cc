#include "ops/blocking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

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
      for (int flags = 0; flags < 8; ++flags) {
        for (int64_t k : {0, 1, 63, 64, 4096, 17408, 131072, 1 << 24}) {
          GemmFacts facts{.k = k, .a_bytes = bytes, .weight_bits = 8 * bytes};
          facts.panel_registers = panel_registers;
          facts.other_registers = panel_registers == 1 ? 1 : 4;
          facts.wide = (flags & 1) != 0;
          facts.pairs = (flags & 2) != 0;
          facts.row_step = (flags & 4) != 0 ? 16 : 1;
          for (int64_t m : {1, 2, 6, 7, 9, 10, 14, 15, 16, 17, 32, 33, 64, 1000, 1 << 20}) {
            const GemmBlocking b = default_blocking(facts, m);
            EXPECT_EQ(invalid(b, facts), nullptr) << k << ' ' << m << ' ' << flags;
          }
        }
      }
    }
  }
}

// Blocks of whole tiles that follow one another, but for the end of the last one; as many tiles as
// the rows have.
TEST(RowBlock, TilesOfEveryNumberOfRows) {
  for (const int mr : {16, 32}) {
    for (int64_t rows = 1; rows <= 200; ++rows) {
      const int64_t blocks = (rows + mr - 1) / mr;
      int64_t end = 0, tiles = 0;
      for (int64_t i = 0; i < blocks; ++i) {
        const Range r = row_block(rows, mr, 16, i);
        ASSERT_EQ(r.begin, end) << mr << ' ' << rows;
        ASSERT_GT(r.size(), 0);
        ASSERT_LE(r.size(), mr);
        ASSERT_TRUE(r.size() % 16 == 0 || i + 1 == blocks) << mr << ' ' << rows;
        tiles += (r.size() + 15) / 16;
        end = r.end;
      }
      EXPECT_EQ(end, rows);
      EXPECT_EQ(tiles, (rows + 15) / 16);
    }
  }
  EXPECT_EQ(row_block(7, 4, 1, 0).size(), 4);
  EXPECT_EQ(row_block(7, 4, 1, 1).size(), 3);
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
