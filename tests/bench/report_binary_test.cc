// quern-report as a program: exit codes, and what goes where.

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "tests/bench/example_report.h"
#include "tests/bench/programs.h"
#include "tests/bench/run_program.h"

namespace quern::bench {
namespace {

class ReportBinary : public testing::Test {
 protected:
  void SetUp() override {
    base_ = testing::TempDir() + "/quern_report_" + std::to_string(getpid());
    a_ = base_ + "_a.json";
    b_ = base_ + "_b.json";
    Report slower = example_report();
    slower.rows[0].us.median *= 1.25;
    write(a_, to_json(example_report()));
    write(b_, to_json(slower));
  }
  void TearDown() override {
    for (const std::string& path : {a_, b_, svg()}) std::remove(path.c_str());
  }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  Outcome run(const std::string& arguments) { return run_program(report_program(), arguments); }
  std::string svg() const { return base_ + ".svg"; }

  std::string base_, a_, b_;
};

TEST_F(ReportBinary, TableShowsWhatTheRunPrinted) {
  const Outcome plain = run("table " + a_);
  EXPECT_EQ(plain.code, 0) << plain.err;
  EXPECT_EQ(plain.out, to_text(example_report(), TextTable::Style::kPlain));
  EXPECT_EQ(plain.err, "");
  const Outcome markdown = run("table --markdown " + a_);
  EXPECT_EQ(markdown.out, to_text(example_report(), TextTable::Style::kMarkdown));
  const Outcome both = run("table " + a_ + " " + b_);
  EXPECT_NE(both.out.find(b_ + ":"), std::string::npos) << both.out;
}

TEST_F(ReportBinary, CompareFailsOnlyWhenAsked) {
  EXPECT_EQ(run("compare " + a_ + " " + b_).code, 0);
  const Outcome failed = run("compare " + a_ + " " + b_ + " --fail-below 0.9");
  EXPECT_EQ(failed.code, 1) << failed.err;
  EXPECT_NE(failed.out.find("BELOW 0.9: bf16_gemm/m:4/"), std::string::npos) << failed.out;
  EXPECT_EQ(run("compare " + a_ + " " + b_ + " --fail-below 0.79").code, 0);
  EXPECT_EQ(run("compare " + b_ + " " + a_ + " --fail-below 0.9").code, 0);
}

TEST_F(ReportBinary, RooflineWritesAFile) {
  const Outcome outcome = run("roofline " + a_ + " -o " + svg());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find("no point for bf16_gemm/m:5/"), std::string::npos) << outcome.err;
  std::ifstream file(svg());
  std::string first;
  std::getline(file, first);
  EXPECT_EQ(first, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>");
}

TEST_F(ReportBinary, BadInputAndUsageExitTwo) {
  const std::string text = to_json(example_report());
  const std::string bad = base_ + "_b.json";
  for (const std::string& content :
       {text.substr(0, text.size() / 2), std::string("{}"), std::string(), std::string("\0\1", 2),
        std::string(100000, '[')}) {
    write(bad, content);
    for (const std::string& arguments :
         {"table " + a_ + " " + bad, "compare " + a_ + " " + bad, "compare " + bad + " " + a_,
          "roofline " + bad + " -o " + svg()}) {
      const Outcome outcome = run(arguments);
      EXPECT_EQ(outcome.code, 2) << arguments;
      EXPECT_EQ(outcome.out, "") << arguments;
      EXPECT_NE(outcome.err.find(bad), std::string::npos) << outcome.err;
    }
  }
  for (const std::string& arguments :
       {std::string(), std::string("nonsense"), std::string("table"),
        std::string("table /no/such/file"), "table " + testing::TempDir(), "compare " + a_,
        "compare " + a_ + " " + a_ + " --fail-below nan",
        "compare " + a_ + " " + a_ + " --fail-below -1", "roofline " + a_,
        "roofline " + a_ + " -o /no/such/directory/x.svg"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
  }
}

TEST_F(ReportBinary, RunsWithNothingInCommonAreBadInput) {
  Report other = example_report();
  for (Row& row : other.rows) row.problem.k = 3;
  write(b_, to_json(other));
  const Outcome outcome = run("compare " + a_ + " " + b_);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("no problem in common"), std::string::npos) << outcome.err;
}

TEST_F(ReportBinary, HelpExitsZero) {
  EXPECT_EQ(run("--help").code, 0);
  EXPECT_NE(run("compare --help").out.find("--fail-below"), std::string::npos);
}

}  // namespace
}  // namespace quern::bench
