// The program itself: exit codes, and what goes where.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "bench/context_set.h"
#include "bench/static_code.h"
#include "quern/problem.h"
#include "tests/bench/programs.h"
#include "tests/bench/run_program.h"

namespace quern::bench {
namespace {

Outcome run(const std::string& arguments, const std::string& environment = "") {
  return run_program(bench_program(), arguments, environment);
}

bool kernels_can_run() {
  return ContextSet().plain().isa() != IsaLevel::kNone;
}

TEST(Binary, UnknownSwitchesExitTwo) {
  for (const char* arguments :
       {"--nonsense", "--benchmark_nonsense=1 --peer none --m 1 --shapes 1x1", "--m one",
        "not_a_problem", "int8_gemm/m:1/x:2", "--peer none int8_gemm/m:1/n:1", "--quick --m 1",
        "--shapes no_such_file", "--min-time nan", "--cold 2",
        "--peer none --m 1 --shapes 1x1 --benchmark_filter=zzz",
        "--peer none --m 1 --shapes 1x1 '--benchmark_filter=('", "--benchmark_repetitions=-1",
        "--peer none --limits /no/such/file int8_gemm/m:1/n:1/k:1/thr:1"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << "\n" << outcome.err;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_NE(outcome.err, "") << arguments;
  }
}

TEST(Binary, WrongEnvironmentExitsTwo) {
  const Outcome outcome = run("--list --peer none", "QUERN_MAX_ISA=avx1024");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("QUERN_MAX_ISA must be amx, avx512 or none, got 'avx1024'"),
            std::string::npos)
      << outcome.err;
}

TEST(Binary, HelpAndListExitZero) {
  EXPECT_EQ(run("--help").code, 0);
  const Outcome list = run("--list --ops int8_gemm --shapes 64x32 --m 1,64 --threads 1");
  EXPECT_EQ(list.code, 0) << list.err;
  std::istringstream lines(list.out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_TRUE(parse_problem(line).ok()) << line;
  }
  EXPECT_EQ(count, 2);
}

// Nothing is executed, so that no level is needed.
TEST(Binary, TheStaticModelNeedsNoKernelToRun) {
  const std::string kernel = "bf16_gemm.amx.bf16bf16bf16.mr32.nr2.pf0.epi=none";
  const Outcome outcome = run("--static " + kernel, "QUERN_MAX_ISA=none");
  if (!can_decode()) {
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.err.find("Zydis"), std::string::npos) << outcome.err;
    GTEST_SKIP() << "built without Zydis 4: no code can be read";
  }
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("not validated on hardware"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("| " + kernel), std::string::npos) << outcome.out;
  EXPECT_EQ(run("--static no.kernel").code, 2);
}

TEST(Binary, WhereNoKernelMayRunItSaysSoAndExitsOne) {
  const Outcome outcome =
      run("--peer none --min-time 0.001 int8_gemm/m:1/n:16/k:16/thr:1", "QUERN_MAX_ISA=none");
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("ERROR: "), std::string::npos) << outcome.out;
}

TEST(Binary, JsonFilesHoldOnlyJson) {
  if (!kernels_can_run()) GTEST_SKIP() << "no kernel can run on this machine";
  const std::string path = testing::TempDir() + "/quern_bench_json_" + std::to_string(getpid());
  const Outcome outcome = run("--verify --min-time 0.001 --threads 1 --json " + path +
                              " int8_gemm/m:2/n:64/k:64 bf16_gemm/m:2/n:64/k:64");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(read_file(path));
  std::remove(path.c_str());
  ASSERT_EQ(json["rows"].size(), 2u);
  EXPECT_EQ(json["rows"][0]["verified"], "equal");
  EXPECT_GT(json["rows"][0]["us"].get<double>(), 0);
  EXPECT_NE(outcome.out.find("| problem"), std::string::npos) << outcome.out;
}

TEST(Binary, GoogleBenchmarkFlagsWork) {
  if (!kernels_can_run()) GTEST_SKIP() << "no kernel can run on this machine";
  const Outcome outcome =
      run("--peer none --min-time 0.001 --benchmark_format=json --benchmark_filter=bf16 "
          "int8_gemm/m:2/n:64/k:64/thr:1 bf16_gemm/m:2/n:64/k:64/thr:1");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);  // stdout holds JSON and nothing else
  ASSERT_EQ(json["benchmarks"].size(), 1u);
  EXPECT_EQ(std::string(json["benchmarks"][0]["name"]).rfind("bf16_gemm/m:2/n:64/k:64/", 0), 0u);
  EXPECT_TRUE(parse_problem(std::string(json["benchmarks"][0]["name"])).ok());
}

TEST(Binary, NamesSayWhichLevelRan) {
  if (!kernels_can_run()) GTEST_SKIP() << "no kernel can run on this machine";
  const Outcome list = run("--list --ops int8_gemm --shapes 64x32 --m 1 --threads 1");
  EXPECT_EQ(list.out, "int8_gemm/m:1/n:64/k:32/isa:avx512/thr:1/cold:1\n");
  const Outcome outcome = run("--peer none --min-time 0.001 quantize_rows/m:1/k:64/isa:amx/thr:1");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.out.find("isa:amx did not run because: "), std::string::npos) << outcome.out;
}

// Roofs are measured for as many threads as there are CPUs: this took minutes.
TEST(Binary, FarMoreThreadsThanCpusTakeSeconds) {
  if (!kernels_can_run()) GTEST_SKIP() << "no kernel can run on this machine";
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome =
      run("--peer none --min-time 0.001 --alternations 1 int8_gemm/m:1/n:64/k:64/thr:512");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(Binary, RoofsThatALimitContradictsAreVoid) {
  if (!kernels_can_run()) GTEST_SKIP() << "no kernel can run on this machine";
  const Outcome outcome =
      run("--peer none --min-time 0.001 --limits 'echo limit,dram-read,x,1,1e6,1e6,GB/s' "
          "int8_gemm/m:1/n:64/k:64/thr:1");
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("VOID"), std::string::npos) << outcome.out;
}

TEST(Binary, AJsonPathThatCannotBeWrittenFailsBeforeMeasuring) {
  const Outcome outcome = run("--peer none --json /no/such/directory/x int8_gemm/m:1/n:1/k:1");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("/no/such/directory/x"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace quern::bench
