#include "ops/blocking.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>

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
  for (int a_bytes : {1, 2}) {
    for (int max_mr : {4, 6}) {
      for (bool wide : {false, true}) {
        for (int64_t k : {0, 1, 63, 64, 4096, 17408, 131072, 1 << 24}) {
          const GemmFacts facts{k, a_bytes, a_bytes, max_mr, wide};
          for (int64_t m : {1, 2, 6, 7, 16, 17, 64, 1000, 1 << 20}) {
            EXPECT_EQ(invalid(default_blocking(facts, m), facts), nullptr) << k << ' ' << m;
          }
        }
      }
    }
  }
}

TEST(DefaultBlocking, WideSumsAreCutAtTheContractsMultiple) {
  EXPECT_EQ(default_blocking({.k = 200000, .wide = true}, 1).kc, 65536);
  EXPECT_EQ(default_blocking({.k = 200000, .wide = true}, 100).kc, 65536);
}

TEST(InvalidBlocking, NamesTheBrokenRule) {
  const GemmFacts facts{4096, 1, 1, 6, false};
  const GemmBlocking good = default_blocking(facts, 64);
  const auto broken = [&](auto change) {
    GemmBlocking b = good;
    change(b);
    return invalid(b, facts) != nullptr;
  };
  EXPECT_TRUE(broken([](auto& b) { b.mr = 0; }));
  EXPECT_TRUE(broken([](auto& b) { b.mr = 7; }));
  EXPECT_TRUE(broken([](auto& b) { b.nr = 3; }));
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
