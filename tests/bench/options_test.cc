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
  const std::vector<Problem> problems = problems_of(o, 2);
  EXPECT_EQ(problems.size(), 2u * 4 * 5);  // ops, shapes, row counts
  for (const Problem& p : problems) EXPECT_EQ(p.threads, 2);
}

TEST(Options, EverySwitch) {
  const Options o = parse_options({"--ops",      "bf16_gemm",
                                   "--shapes",   "64x32,16x8",
                                   "--m",        "1,64",
                                   "--threads",  "1,2",
                                   "--cold",     "0",
                                   "--isa",      "avx512",
                                   "--peer-isa", "best",
                                   "--limits",   "some command",
                                   "--peer",     "none",
                                   "--verify",   "--json",
                                   "x.json",     "--min-time",
                                   "0.5",        "--alternations",
                                   "7",          "--benchmark_filter=m:1/"});
  EXPECT_FALSE(o.peer);
  EXPECT_TRUE(o.measure.verify);
  EXPECT_EQ(o.measure.budget.seconds, 0.5);
  EXPECT_EQ(o.measure.alternations, 7);
  EXPECT_EQ(o.json_path, "x.json");
  EXPECT_EQ(o.benchmark_flags, std::vector<std::string>{"--benchmark_filter=m:1/"});
  const std::vector<Problem> problems = problems_of(o, 8);
  ASSERT_EQ(problems.size(), 8u);
  EXPECT_EQ(to_string(problems[0]), "bf16_gemm/m:1/n:64/k:32/isa:avx512/thr:1");
  EXPECT_EQ(o.peer_isa, PeerIsa::kBest);
  EXPECT_EQ(o.limits, "some command");
  EXPECT_EQ(o.command.rfind("quern-bench --ops bf16_gemm --shapes", 0), 0u) << o.command;
}

TEST(Options, ReproducerLinesOfFailedTestsWork) {
  const Options o = parse_options({"--verify=int8_gemm/m:3/n:5/k:7"});
  EXPECT_TRUE(o.measure.verify);
  const std::vector<Problem> problems = problems_of(o, 2);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(to_string(problems[0]), "int8_gemm/m:3/n:5/k:7/thr:2");
}

TEST(Options, StaticTakesNamesOfKernels) {
  const Options o = parse_options({"--static", "some.kernel", "another", "--json", "x.json"});
  EXPECT_TRUE(o.static_model);
  EXPECT_EQ(o.problems, (std::vector<std::string>{"some.kernel", "another"}));
  EXPECT_EQ(o.json_path, "x.json");
}

TEST(Options, BatchesAndShapesOfBmm) {
  const auto plain = problems_of(parse_options({"--ops", "bmm", "--m", "1"}), 2);
  ASSERT_EQ(plain.size(), 2u);
  EXPECT_EQ(to_string(plain[0]), "bmm/b:128/m:1/n:512/k:128/thr:2/cold:1");
  EXPECT_EQ(to_string(plain[1]), "bmm/b:128/m:1/n:128/k:512/thr:2/cold:1");
  const auto told = problems_of(
      parse_options({"--ops", "bmm,bf16_gemm", "--m", "64", "--batch", "2,0", "--shapes", "3x4"}),
      1);
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(to_string(told[0]), "bmm/b:2/m:64/n:3/k:4/thr:1");
  EXPECT_EQ(to_string(told[1]), "bmm/b:0/m:64/n:3/k:4/thr:1");
  EXPECT_EQ(to_string(told[2]), "bf16_gemm/m:64/n:3/k:4/thr:1");
}

TEST(Options, QuickAlwaysVerifies) {
  EXPECT_TRUE(parse_options({"--quick"}).measure.verify);
}

TEST(Options, HelpNamesEverySwitch) {
  const Options o = parse_options({"--help"});
  ASSERT_TRUE(o.help);
  for (const char* name : {"--shapes", "--ops", "--m", "--batch", "--threads", "--cold", "--peer",
                           "--peer-isa", "--isa", "--limits", "--verify", "--quick", "--list",
                           "--static", "--json", "--min-time", "--alternations"}) {
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
      {"--isa", "none"},
      {"--peer-isa", "avx2"},
      {"--quick", "--m", "1"},
      {"--quick", "--batch", "2"},
      {"--batch", "2"},
      {"--ops", "bmm", "--batch", "x"},
      {"--static", "--m", "32"},
      {"--static", "--quick"},
      {"--static", "--verify"},
      {"--static", "--isa", "amx"},
      {"--static", "--cold=1"},
      {"--static", "--benchmark_filter=x"},
      {"int8_gemm/m:1/n:1/k:1", "--shapes", "1x1"}};
  for (const auto& arguments : wrong) {
    EXPECT_THROW(parse_options(arguments), UsageError) << arguments.front();
  }
}

/// Every switch that takes a number, with values that are none or are out of its range.
TEST(Options, NumbersAreNumbers) {
  const std::vector<std::string> never = {"",
                                          " ",
                                          "x",
                                          "nan",
                                          "-nan",
                                          "inf",
                                          "-inf",
                                          "1e999",
                                          "-1",
                                          "-0.5",
                                          "0x10",
                                          "1 2",
                                          "1,,2",
                                          ",1",
                                          "1,",
                                          "--1",
                                          "1e-999x",
                                          "+1",
                                          "99999999999999999999999999999999999999",
                                          "18446744073709551617",
                                          "4294967297x"};
  for (const char* name : {"--m", "--threads", "--min-time", "--alternations"}) {
    for (const std::string& value : never) {
      EXPECT_THROW(parse_options({std::string(name) + "=" + value, "--list"}), UsageError)
          << name << "=" << value;
    }
  }
  const std::vector<std::pair<const char*, const char*>> outside = {{"--m", "268435457"},
                                                                    {"--m", "1.5"},
                                                                    {"--m", "1e3"},
                                                                    {"--threads", "0"},
                                                                    {"--threads", "1025"},
                                                                    {"--threads", "4294967297"},
                                                                    {"--min-time", "0"},
                                                                    {"--min-time", "61"},
                                                                    {"--alternations", "0"},
                                                                    {"--alternations", "1001"},
                                                                    {"--alternations", "1.0"},
                                                                    {"--cold", "2"},
                                                                    {"--cold", "-1"},
                                                                    {"--cold", "AUTO"}};
  for (const auto& [name, value] : outside) {
    EXPECT_THROW(parse_options({name, value}), UsageError) << name << " " << value;
  }
  for (const char* flag : {"--benchmark_repetitions=-1", "--benchmark_repetitions=nan",
                           "--benchmark_repetitions=99999999999", "--benchmark_min_time=nan",
                           "--benchmark_min_time=-1", "--benchmark_repetitions"}) {
    EXPECT_THROW(parse_options({flag}), UsageError) << flag;
  }
  EXPECT_NO_THROW(parse_options({"--benchmark_repetitions=3", "--benchmark_min_time=0.5s"}));
}

TEST(Options, TheMessageNamesSwitchValueAndRange) {
  try {
    parse_options({"--min-time", "nan"});
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(), "--min-time nan: expected a number from 0.001 to 60");
  }
}

}  // namespace
}  // namespace quern::bench
