#include "bench/roofline.h"

#include <gtest/gtest.h>

#include <string>

namespace quern::bench {
namespace {

// Round numbers, so that every floor is one a reader can check: 50 bytes/ns, 1000 and 500 ops/ns.
constexpr Roofs kRoofs{2, 50, 1000, 500};

TEST(Roofline, MemoryBindsWhenItTakesLonger) {
  const Floor floor = floor_of({1e6, 5e6, Peak::kInt8, true}, kRoofs);
  EXPECT_DOUBLE_EQ(floor.us, 100);  // 5e6 bytes at 50 GB/s; the operations need 1 us
  EXPECT_STREQ(floor.bound, "DRAM");
}

TEST(Roofline, ArithmeticBindsWhenItTakesLonger) {
  const Floor int8 = floor_of({2e9, 5e6, Peak::kInt8, true}, kRoofs);
  EXPECT_DOUBLE_EQ(int8.us, 2000);
  EXPECT_STREQ(int8.bound, "int8");
  const Floor bf16 = floor_of({2e9, 5e6, Peak::kBf16, true}, kRoofs);
  EXPECT_DOUBLE_EQ(bf16.us, 4000);
  EXPECT_STREQ(bf16.bound, "bf16");
}

TEST(Roofline, CachedBytesHaveNoMemoryRoof) {
  const Floor floor = floor_of({1e6, 5e6, Peak::kInt8, false}, kRoofs);
  EXPECT_DOUBLE_EQ(floor.us, 1);
  EXPECT_STREQ(floor.bound, "int8");
}

TEST(Roofline, WithoutAnyRoofThereIsNoPercentage) {
  const Floor cached = floor_of({0, 5e6, Peak::kNone, false}, kRoofs);
  EXPECT_EQ(cached.us, 0);
  EXPECT_EQ(percent_of(cached, 10), 0);
  EXPECT_EQ(floor_of({1e6, 5e6, Peak::kInt8, true}, Roofs{}).us, 0);
}

TEST(Roofline, PercentIsFloorOverTime) {
  EXPECT_DOUBLE_EQ(percent_of({100, "DRAM"}, 100), 100);
  EXPECT_DOUBLE_EQ(percent_of({100, "DRAM"}, 125), 80);
  EXPECT_DOUBLE_EQ(percent_of({100, "DRAM"}, 0), 0);
}

TEST(Roofline, ColdAndLargeComeFromMemory) {
  EXPECT_TRUE(comes_from_memory(1, true));
  EXPECT_TRUE(comes_from_memory(64e6, false));
  EXPECT_FALSE(comes_from_memory(8e6, false));
}

TEST(Roofline, MeanIsTakenFieldByField) {
  const Roofs m = mean({2, 50, 1000, 500}, {2, 60, 1100, 480});
  EXPECT_EQ(m.threads, 2);
  EXPECT_DOUBLE_EQ(m.dram_gbps, 55);
  EXPECT_DOUBLE_EQ(m.int8_gops, 1050);
  EXPECT_DOUBLE_EQ(m.bf16_gops, 490);
}

TEST(Roofline, OnlyRoofsBeyondTheToleranceMoved) {
  EXPECT_TRUE(moved({2, 50, 1000, 500}, {2, 52, 960, 500}).empty());
  const auto sentences = moved({2, 50, 1000, 500}, {2, 40, 1000, 530});
  ASSERT_EQ(sentences.size(), 2u);
  EXPECT_EQ(sentences[0], "DRAM bandwidth moved from 50.0 to 40.0 GB/s (-20.0 %)");
  EXPECT_EQ(sentences[1], "bf16 peak moved from 500.0 to 530.0 GOP/s (+6.0 %)");
}

TEST(Roofline, AnUnmeasuredRoofDidNotMove) {
  EXPECT_TRUE(moved({2, 0, 0, 0}, {2, 50, 0, 500}).empty());
}

}  // namespace
}  // namespace quern::bench
