#include "bench/memory_plan.h"

#include <gtest/gtest.h>

#include "bench/cold_weights.h"

namespace quern::bench {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kGiB = size_t{1} << 30;

TEST(MemoryPlan, TwiceTheCacheWhereItIsLarge) {
  const MemoryPlan plan = plan_memory(480 * kMiB, 22 * kGiB);
  EXPECT_EQ(plan.cold_bytes, 960 * kMiB);
  EXPECT_EQ(plan.cache_bytes, 480 * kMiB);
  EXPECT_FALSE(plan.short_of_memory);
}

TEST(MemoryPlan, AHiddenOrSmallCacheGetsTheFloor) {
  for (size_t llc : {size_t{0}, 16 * kMiB}) {
    const MemoryPlan plan = plan_memory(llc, 22 * kGiB);
    EXPECT_EQ(plan.cold_bytes, 512 * kMiB);
    EXPECT_EQ(plan.cache_bytes, 32 * kMiB);
    EXPECT_FALSE(plan.short_of_memory);
  }
}

TEST(MemoryPlan, AnEighthOfMemoryIsTheMostAndIsSaid) {
  const MemoryPlan plan = plan_memory(480 * kMiB, 4 * kGiB);
  EXPECT_EQ(plan.cold_bytes, 512 * kMiB);
  EXPECT_TRUE(plan.short_of_memory);
  EXPECT_NE(describe(plan).find("LESS than the rule asks for"), std::string::npos);
  EXPECT_GT(plan_memory(480 * kMiB, 0).cold_bytes, 0u);
}

TEST(MemoryPlan, SaysWhatWasReported) {
  EXPECT_EQ(describe(plan_memory(480 * kMiB, 22 * kGiB)),
            "cold set and DRAM buffer 960 MiB each (last-level cache 480 MiB as reported)");
  EXPECT_NE(describe(plan_memory(0, 22 * kGiB)).find("no last-level cache is reported"),
            std::string::npos);
}

TEST(MemoryPlan, OfThisMachineIsUsable) {
  const MemoryPlan plan = plan_memory();
  EXPECT_GE(plan.cold_bytes, 64 * kMiB);
  EXPECT_GE(plan.cache_bytes, 32 * kMiB);
}

TEST(ColdCopies, AreMoreThanTheColdBytes) {
  EXPECT_EQ(copies_for(100, 1000), 11);
  EXPECT_EQ(copies_for(5000, 1000), 2);  // never the same bytes twice in a row
  EXPECT_EQ(copies_for(0, size_t{1} << 40), kMaxColdCopies);
}

}  // namespace
}  // namespace quern::bench
