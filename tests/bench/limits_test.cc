#include "bench/limits.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "bench/usage_error.h"

namespace quern::bench {
namespace {

const char* const kOutput =
    "# a machine\n"
    "limit,test,variant,threads,best,median,unit\n"
    "limit,dram-read,thp/plain,2,60.5,55.0,GB/s\n"
    "limit,dram-read,thp/4streams+1K,2,80.0,76.0,GB/s\r\n"
    "limit,ukernel6x4,vpdpbusd-L1,2,1650.0,1600.0,GOP/s\n"
    "limit,latency,32KiB,1,1.4,1.5,ns\n"
    "limit,vdpbf16ps,instr,2,3.4,3.3,Ginstr/s\n";

TEST(Limits, BestLineOfEachRoof) {
  const std::vector<Limit> limits = parse_limits(kOutput, "x");
  ASSERT_EQ(limits.size(), 2u);
  EXPECT_EQ(limits[0].roof, Roof::kDram);
  EXPECT_EQ(limits[0].threads, 2);
  EXPECT_EQ(limits[0].best, 80);
  EXPECT_EQ(limits[0].median, 76);
  EXPECT_FALSE(limits[0].with_loads);
  EXPECT_EQ(limits[1].roof, Roof::kVnni);
  EXPECT_TRUE(limits[1].with_loads);
}

TEST(Limits, RegistersGoBeforeLoops) {
  const std::string loop = "limit,ukernel6x4,vpdpbusd-L1,1,900,890,GOP/s\n";
  const std::string registers = "limit,vpdpbusd,reg,1,850,840,GOP/s\n";
  for (const std::string& text : {loop + registers, registers + loop}) {
    const std::vector<Limit> limits = parse_limits(text, "x");
    ASSERT_EQ(limits.size(), 1u);
    EXPECT_EQ(limits[0].best, 850);
    EXPECT_FALSE(limits[0].with_loads);
  }
}

std::string error_of(const std::string& text) {
  try {
    parse_limits(text, "file");
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Limits, HostileTextIsRefusedByLine) {
  for (const char* number : {"nan", "inf", "-1", "1e999", "x", "", "0x1"}) {
    const std::string error =
        error_of(std::string("\nlimit,dram-read,x,2,") + number + ",1,GB/s\n");
    EXPECT_EQ(error.rfind("--limits file:2: best", 0), 0u) << error;
  }
  EXPECT_NE(error_of("limit,dram-read,x,-2,1,1,GB/s\n").find("threads"), std::string::npos);
  for (const char* text : {"", "\n\n", "limit,dram-read,x,2\n", "hello", "limit"}) {
    EXPECT_NE(error_of(text).find("holds no line"), std::string::npos) << text;
  }
}

LimitCheck check(double median, double best, bool with_loads, double ours) {
  return {"before", {Roof::kVnni, 1, median, best, with_loads}, ours};
}

TEST(Limits, AgreeWithinFivePercentOfTheInterval) {
  EXPECT_EQ(check(90, 100, false, 95).distance(), 0);
  EXPECT_TRUE(check(90, 100, false, 104.9).agrees());
  EXPECT_FALSE(check(90, 100, false, 105.1).agrees());
  EXPECT_TRUE(check(90, 100, false, 85.6).agrees());
  EXPECT_FALSE(check(90, 100, false, 85.4).agrees());
}

TEST(Limits, RegistersMayPassALoopWithLoadsByTen) {
  EXPECT_TRUE(check(90, 100, true, 109.9).agrees());
  EXPECT_FALSE(check(90, 100, true, 110.1).agrees());
  EXPECT_FALSE(check(90, 100, true, 85.4).agrees());  // below is below
}

TEST(Limits, OnlyWhatBothMeasuredIsCompared) {
  const RoofSet roofs = {2, {{2, {{2, {78, 0, 850}}, {2, {50, 0, 850}}}}}};
  const std::vector<Limit> limits = parse_limits(kOutput, "x");
  const std::vector<LimitCheck> before = compare_limits(limits, roofs, false);
  ASSERT_EQ(before.size(), 1u);  // no int8 roof
  EXPECT_EQ(before[0].ours, 78);
  EXPECT_TRUE(before[0].agrees());
  const std::vector<LimitCheck> after = compare_limits(limits, roofs, true);
  ASSERT_EQ(after.size(), 1u);
  EXPECT_EQ(after[0].when, "after");
  EXPECT_FALSE(after[0].agrees());
  EXPECT_TRUE(compare_limits(limits, {1, {{1, {{1, {78}}, {1, {78}}}}}}, false).empty());
  EXPECT_NE(limits_table(after, TextTable::Style::kPlain).find("VOID"), std::string::npos);
  EXPECT_EQ(limits_table(before, TextTable::Style::kPlain).find("VOID"), std::string::npos);
}

TEST(LimitsSource, ReadsAFileOrRunsACommand) {
  const std::string path = testing::TempDir() + "/limits_" + std::to_string(getpid());
  std::ofstream(path) << kOutput;
  EXPECT_EQ(LimitsSource(path).read().size(), 2u);
  EXPECT_EQ(LimitsSource("cat " + path).read().size(), 2u);
  std::remove(path.c_str());
  EXPECT_THROW(LimitsSource(path).read(), UsageError);
  EXPECT_THROW(LimitsSource("exit 3").read(), UsageError);
  EXPECT_THROW(LimitsSource("true").read(), UsageError);
}

}  // namespace
}  // namespace quern::bench
