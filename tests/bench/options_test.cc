#include "bench/options.h"

#include <gtest/gtest.h>

#include "bench/usage_error.h"

namespace quern::bench {
namespace {

TEST(Options, Defaults) {
  const Options o = parse_options({});
  EXPECT_TRUE(o.peer);
  EXPECT_FALSE(o.quick);
  EXPECT_FALSE(o.measure.verify);
  EXPECT_GE(o.measure.alternations, 5);
  const std::vector<Problem> problems = problems_of(o, 2, IsaLevel::kAvx512);
  EXPECT_EQ(problems.size(), 2u * 4 * 5);  // ops, shapes, row counts
  for (const Problem& p : problems) EXPECT_EQ(p.threads, 2);
}

TEST(Options, EverySwitch) {
  const Options o = parse_options({"--ops",     "bf16_gemm",
                                   "--shapes",  "64x32,16x8",
                                   "--m",       "1,64",
                                   "--threads", "1,2",
                                   "--cold",    "0",
                                   "--peer",    "none",
                                   "--verify",  "--json",
                                   "x.json",    "--min-time",
                                   "0.5",       "--alternations",
                                   "7",         "--benchmark_filter=m:1/"});
  EXPECT_FALSE(o.peer);
  EXPECT_TRUE(o.measure.verify);
  EXPECT_EQ(o.measure.budget.seconds, 0.5);
  EXPECT_EQ(o.measure.alternations, 7);
  EXPECT_EQ(o.json_path, "x.json");
  EXPECT_EQ(o.benchmark_flags, std::vector<std::string>{"--benchmark_filter=m:1/"});
  const std::vector<Problem> problems = problems_of(o, 8, IsaLevel::kNone);
  ASSERT_EQ(problems.size(), 8u);
  EXPECT_EQ(to_string(problems[0]), "bf16_gemm/m:1/n:64/k:32/thr:1");
}

TEST(Options, ReproducerLinesOfFailedTestsWork) {
  const Options o = parse_options({"--verify=int8_gemm/m:3/n:5/k:7"});
  EXPECT_TRUE(o.measure.verify);
  const std::vector<Problem> problems = problems_of(o, 2, IsaLevel::kNone);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(to_string(problems[0]), "int8_gemm/m:3/n:5/k:7/thr:2");
}

TEST(Options, QuickAlwaysVerifies) {
  EXPECT_TRUE(parse_options({"--quick"}).measure.verify);
}

TEST(Options, HelpNamesEverySwitch) {
  const Options o = parse_options({"--help"});
  ASSERT_TRUE(o.help);
  for (const char* name : {"--shapes", "--ops", "--m", "--threads", "--cold", "--peer", "--verify",
                           "--quick", "--list", "--json"}) {
    EXPECT_NE(o.help->find(name), std::string::npos) << name;
  }
}

TEST(Options, WrongUsageIsRefused) {
  const std::vector<std::vector<std::string>> wrong = {
      {"--nonsense"},
      {"--m"},
      {"--m", "x"},
      {"--m", "-1"},
      {"--threads", "0"},
      {"--threads", "5000"},
      {"--cold", "maybe"},
      {"--peer", "mkl"},
      {"--ops", "int9"},
      {"--min-time", "-1"},
      {"--alternations", "0"},
      {"--quick", "--m", "1"},
      {"int8_gemm/m:1/n:1/k:1", "--shapes", "1x1"}};
  for (const auto& arguments : wrong) {
    EXPECT_THROW(parse_options(arguments), UsageError) << arguments.front();
  }
}

}  // namespace
}  // namespace quern::bench
