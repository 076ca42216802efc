#include "bench/compare.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/bench/example_report.h"

namespace quern::bench {
namespace {

constexpr TextTable::Style kPlain = TextTable::Style::kPlain;

/// One row at 80 % of a roof that stood still, blocks within 0.5 %.
Report one_row() {
  Report report = example_report();
  report.rows.pop_back();
  report.roofs.of_threads[2] = {{2, {50, 1700, 850}}, {2, {50, 1700, 850}}};
  return report;
}

TEST(Compare, ARunIsTheSameAsItself) {
  const Comparison c = compare(one_row(), one_row());
  EXPECT_TRUE(c.differences.empty());
  ASSERT_EQ(c.rows.size(), 1u);
  EXPECT_DOUBLE_EQ(*c.rows[0].ratio, 1);
  EXPECT_DOUBLE_EQ(c.rows[0].percent_a, 80);
  EXPECT_FALSE(c.rows[0].beyond_noise());
  EXPECT_TRUE(c.only_a.empty());
  EXPECT_TRUE(c.only_b.empty());
  EXPECT_TRUE(c.below(1).empty());
  EXPECT_NE(to_text(c, kPlain).find("same"), std::string::npos);
}

TEST(Compare, PercentOfRoofIsComparedAndNotTime) {
  const Report a = one_row();
  Report b = one_row();
  // Half the bandwidth and twice the time: the kernel is as good as it was.
  b.roofs.of_threads[2] = {{2, {25, 1700, 850}}, {2, {25, 1700, 850}}};
  b.rows[0].us.median = 800;
  b.rows[0].block_mad = 4;
  const ComparedRow row = compare(a, b).rows.at(0);
  EXPECT_DOUBLE_EQ(*row.ratio, 1);
  EXPECT_FALSE(row.beyond_noise());
}

TEST(Compare, NoiseIsThreeMadsOfBothFiles) {
  const Report a = one_row();
  Report b = one_row();
  // Relative MADs 0.5 % each: 3 * hypot(0.005, 0.005) = 2.12 %.
  b.rows[0].us.median = 400 * 1.02;
  b.rows[0].block_mad = 2.04;
  EXPECT_NEAR(compare(a, b).rows.at(0).noise, 0.0212, 1e-4);
  EXPECT_FALSE(compare(a, b).rows.at(0).beyond_noise());
  b.rows[0].us.median = 400 * 1.03;
  EXPECT_TRUE(compare(a, b).rows.at(0).beyond_noise());
  EXPECT_NE(to_text(compare(a, b), kPlain).find("B WORSE"), std::string::npos);
  EXPECT_NE(to_text(compare(b, a), kPlain).find("B BETTER"), std::string::npos);
  b.rows[0].block_mad = 20;  // a run that repeats badly proves nothing
  EXPECT_FALSE(compare(a, b).rows.at(0).beyond_noise());
}

TEST(Compare, RoofsThatMovedAddToTheNoise) {
  Report a = one_row();
  const double still = compare(a, a).rows.at(0).noise;
  a.roofs.of_threads[2] = {{2, {45, 1700, 850}}, {2, {55, 1700, 850}}};
  EXPECT_NEAR(compare(a, one_row()).rows.at(0).noise, still + 0.1, 1e-9);
}

// A row that waits for memory is held to the rate beside it, whose spread counts; how far the run's
// own DRAM roof moved does not.
TEST(Compare, MemoryRatesBesideRowsAddTheirSpread) {
  Report a = one_row();
  a.rows[0].work.memory_rate = 50;
  const double still = compare(a, a).rows.at(0).noise;
  Report b = a;
  b.roofs.of_threads[2] = {{2, {45, 1700, 850}}, {2, {55, 1700, 850}}};
  EXPECT_NEAR(compare(a, b).rows.at(0).noise, still, 1e-9);
  b.rows[0].work.memory_rate = 46.5;
  b.rows[0].work.memory_mad = 1.86;  // 4 %
  EXPECT_NEAR(compare(a, b).rows.at(0).noise, std::hypot(still, 0.12), 1e-9);
  EXPECT_FALSE(compare(a, b).rows.at(0).beyond_noise());
  b.rows[0].work.from_memory = false;  // not what its percentage holds against
  EXPECT_LT(compare(a, b).rows.at(0).noise, 0.12);
}

TEST(Compare, BlocksWithoutSpreadAreNotTakenAtTheirWord) {
  Report a = one_row();
  a.rows[0].block_mad = 0;
  EXPECT_DOUBLE_EQ(compare(a, a).rows.at(0).noise, 0.01);
}

TEST(Compare, WithoutARoofTimesAreCompared) {
  Report a = one_row(), b = one_row();
  a.rows[0].work.peak = b.rows[0].work.peak = Peak::kNone;
  a.rows[0].work.from_memory = b.rows[0].work.from_memory = false;
  b.rows[0].us.median = 200;
  const ComparedRow row = compare(a, b).rows.at(0);
  EXPECT_DOUBLE_EQ(*row.ratio, 2);
  EXPECT_EQ(row.percent_a, 0);
}

TEST(Compare, BelowIsStrictAndCountsLostNumbers) {
  const Report a = one_row();
  Report b = one_row();
  b.rows[0].us.median = 400 / 0.9;
  EXPECT_TRUE(compare(a, b).below(0.89).empty());
  EXPECT_EQ(compare(a, b).below(0.91).size(), 1u);
  b.rows[0].error = "it broke";
  EXPECT_EQ(compare(a, b).below(0).size(), 1u);
  EXPECT_TRUE(compare(b, a).below(0).empty());  // an error that went away
  EXPECT_NE(to_text(compare(a, b), kPlain).find("ERROR in B: it broke"), std::string::npos);
}

TEST(Compare, RowsOfOneRunOnlyAreNamed) {
  Report a = one_row(), b = one_row();
  Row other = a.rows[0];
  other.problem.m = 77;
  a.rows.push_back(other);
  other.problem.m = 88;
  b.rows.insert(b.rows.begin(), other);
  const Comparison c = compare(a, b);
  EXPECT_EQ(c.rows.size(), 1u);
  ASSERT_EQ(c.only_a.size(), 1u);
  ASSERT_EQ(c.only_b.size(), 1u);
  const std::string text = to_text(c, kPlain);
  EXPECT_NE(text.find("only in A: bf16_gemm/m:77/"), std::string::npos) << text;
  EXPECT_NE(text.find("only in B: bf16_gemm/m:88/"), std::string::npos) << text;
}

TEST(Compare, RepetitionsMeetInOrder) {
  Report a = one_row(), b = one_row();
  a.rows.push_back(a.rows[0]);
  a.rows[1].us.median = 800;
  b.rows.push_back(a.rows[1]);
  const Comparison c = compare(a, b);
  ASSERT_EQ(c.rows.size(), 2u);
  EXPECT_DOUBLE_EQ(*c.rows[1].ratio, 1);
  EXPECT_DOUBLE_EQ(c.rows[1].us_a, 800);
}

TEST(Compare, DifferencesAreNamed) {
  const Report a = one_row();
  Report b = one_row();
  b.peer_isa = "best";
  const Comparison same_machine = compare(a, b);
  EXPECT_EQ(same_machine.differences,
            std::vector<std::string>{"peer isa: A has 'row', B has 'best'"});
  b.cpu = "another";
  b.roofs.cpus = 4;
  const std::string text = to_text(compare(a, b), kPlain);
  EXPECT_NE(text.find("cpu: A has 'a \"quoted\" name', B has 'another'"), std::string::npos);
  EXPECT_NE(text.find("usable CPUs: A has '2', B has '4'"), std::string::npos);
  EXPECT_NE(text.find("DIFFERENT MACHINES"), std::string::npos) << text;
}

TEST(Compare, DisturbedRowsGetNoVerdict) {
  const Report a = one_row();
  Report b = one_row();
  b.rows[0].us.median = 800;
  b.rows[0].foreign = 0.5;
  const std::string text = to_text(compare(a, b), kPlain);
  EXPECT_EQ(text.find("WORSE"), std::string::npos) << text;
  EXPECT_NE(text.find("B disturbed"), std::string::npos) << text;
}

}  // namespace
}  // namespace quern::bench
