#include "bench/timing.h"

#include <gtest/gtest.h>

namespace quern::bench {
namespace {

TEST(Timing, MedianOfOddEvenAndNone) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({4, 1, 100, 2}), 3);
}

TEST(Timing, MadIgnoresAnOutlier) {
  const Stats stats = summarize({10, 11, 12, 13, 1000});
  EXPECT_EQ(stats.median, 12);
  EXPECT_EQ(stats.mad, 1);  // distances 2 1 0 1 988
  EXPECT_EQ(stats.count, 5);
}

TEST(Timing, BlockMakesAtLeastTheCallsAskedFor) {
  BlockBudget budget;
  budget.seconds = 0;
  budget.min_calls = 7;
  budget.warm_seconds = 0;
  int calls = 0;
  EXPECT_EQ(time_block(budget, [&] { return ++calls, true; }).size(), 7u);
  EXPECT_EQ(calls, 8);  // one to warm up
}

TEST(Timing, BlockOfAFailingCallIsEmpty) {
  int calls = 0;
  EXPECT_TRUE(time_block(BlockBudget{}, [&] { return ++calls < 3; }).empty());
}

TEST(Timing, ForeignIsWhatNeitherWeNorThePeerUsed) {
  CpuUse begin, end;
  end.wall = 2;
  end.all = 3.5;
  end.ours = 1.5;
  end.peer = 1;
  EXPECT_DOUBLE_EQ(foreign_cpus(begin, end), 0.5);
  end.all = 2;  // clock ticks are coarse: never below zero
  EXPECT_EQ(foreign_cpus(begin, end), 0);
  EXPECT_EQ(foreign_cpus(begin, begin), 0);
}

TEST(Timing, OwnUseIsNotForeign) {
  const CpuUse begin = CpuUse::now(0);
  const double until = microseconds_now() + 50e3;
  while (microseconds_now() < until) {
  }
  const CpuUse end = CpuUse::now(0);
  EXPECT_GT(end.wall, begin.wall);
  EXPECT_GT(end.ours, begin.ours);
}

}  // namespace
}  // namespace quern::bench
