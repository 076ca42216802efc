#include "bench/roofline.h"

#include <gtest/gtest.h>

#include <string>

namespace quern::bench {
namespace {

// Round numbers, so that every floor is one a reader can check: 50 bytes/ns, 1000 and 500 ops/ns.
constexpr Roofs kRoofs{2, {50, 1000, 500, 300, 8000, 4000}};

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

TEST(Roofline, MemoryBesideTheRowTakesThePlaceOfTheRuns) {
  Work work{1e6, 5e6, Peak::kInt8, true};
  work.memory_rate = 25;
  EXPECT_DOUBLE_EQ(floor_of(work, kRoofs).us, 200);
  work.from_memory = false;
  EXPECT_DOUBLE_EQ(floor_of(work, kRoofs).us, 1);
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

TEST(Roofline, Bf16IsHeldToTheFasterInstruction) {
  // 2e9 operations: 500 GOP/s of dot products bind at 4000 us, 800 GOP/s of FMAs at 2500 us.
  const Work work{2e9, 0, Peak::kBf16, false};
  EXPECT_DOUBLE_EQ(floor_of(work, Roofs{2, {50, 1000, 500, 300}}).us, 4000);
  EXPECT_DOUBLE_EQ(floor_of(work, Roofs{2, {50, 1000, 500, 800}}).us, 2500);
  EXPECT_DOUBLE_EQ(floor_of(work, Roofs{2, {50, 1000, 0, 800}}).us, 2500);  // no AVX512-BF16
}

TEST(Roofline, OnlyAmxKernelsAreHeldToTheTileUnit) {
  Work work{8e9, 0, Peak::kInt8, false};
  EXPECT_DOUBLE_EQ(floor_of(work, kRoofs).us, 8000);
  work.level = IsaLevel::kAvx512;
  EXPECT_DOUBLE_EQ(floor_of(work, kRoofs).us, 8000);
  work.level = IsaLevel::kAmx;
  EXPECT_DOUBLE_EQ(floor_of(work, kRoofs).us, 1000);
  work.peak = Peak::kBf16;
  EXPECT_DOUBLE_EQ(floor_of(work, kRoofs).us, 2000);
}

TEST(Roofline, MeanIsTakenRoofByRoof) {
  const Roofs m = mean({2, {50, 1000, 500}}, {2, {60, 1100, 480}});
  EXPECT_EQ(m.threads, 2);
  EXPECT_DOUBLE_EQ(m[Roof::kDram], 55);
  EXPECT_DOUBLE_EQ(m[Roof::kVnni], 1050);
  EXPECT_DOUBLE_EQ(m[Roof::kBf16Dot], 490);
  EXPECT_EQ(m[Roof::kAmxInt8], 0);
}

TEST(Roofline, AMeasurementThatWasNotMadeDoesNotHalveTheOther) {
  EXPECT_DOUBLE_EQ(mean({2, {50}}, {2, {}})[Roof::kDram], 50);
  EXPECT_DOUBLE_EQ(mean({2, {}}, {2, {50}})[Roof::kDram], 50);
}

TEST(Roofline, OnlyRoofsBeyondTheToleranceMoved) {
  EXPECT_TRUE(moved({2, {50, 1000, 500}}, {2, {52, 960, 500}}).empty());
  const auto sentences = moved({2, {50, 1000, 500}}, {2, {40, 1000, 530}});
  ASSERT_EQ(sentences.size(), 2u);
  EXPECT_EQ(sentences[0], "DRAM read moved from 50.0 to 40.0 GB/s (-20.0 %)");
  EXPECT_EQ(sentences[1], "bf16 (vdpbf16ps) moved from 500.0 to 530.0 GOP/s (+6.0 %)");
}

TEST(Roofline, AnUnmeasuredRoofDidNotMove) {
  EXPECT_TRUE(moved({2, {0, 0, 0}}, {2, {50, 0, 500}}).empty());
}

TEST(Roofline, NamesAreInTheOrderOfTheEnum) {
  for (size_t i = 0; i < kRoofCount; ++i) EXPECT_EQ(static_cast<size_t>(kRoofNames[i].roof), i);
}

}  // namespace
}  // namespace quern::bench
