#include "ops/verbose.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/ops/allocation_counter.h"

namespace quern {
namespace {

constexpr char kTemplate[] = "quern_verbose,v1,template,op,kernel,problem,threads,ms,detail";
constexpr char kInfo[] = "quern_verbose,v1,info,context,-,-,-,-,about text";

using Lines = std::vector<std::string>;

void collect(void* user, const char* line) {
  static_cast<Lines*>(user)->emplace_back(line);
}

Problem gemm() {
  Problem p;
  p.op = "int8_gemm";
  p.m = 1;
  p.n = 4096;
  p.k = 64;
  p.threads = 2;
  return p;
}

VerboseLine exec_line(const Problem& p) {
  VerboseLine line;
  line.event = kVerboseExec;
  line.kernel = "int8_gemm.avx512";
  line.problem = &p;
  line.threads = 2;
  line.ns = 1'234'567;
  return line;
}

TEST(Verbose, FirstLineIsTheTemplate) {
  Lines lines;
  Verbose v(kVerboseExec, &collect, &lines, "about text");
  EXPECT_TRUE(lines.empty()) << "nothing is written before there is something to say";
  const Problem p = gemm();
  v.write(exec_line(p));
  v.write(exec_line(p));
  const std::string exec =
      "quern_verbose,v1,exec,int8_gemm,int8_gemm.avx512,int8_gemm/m:1/n:4096/k:64/thr:2,thr2,"
      "1.234567";
  EXPECT_EQ(lines, (Lines{kTemplate, kInfo, exec, exec}));
}

TEST(Verbose, OnlyWantedEventsAreWritten) {
  const VerboseFlags events[] = {kVerboseError, kVerboseDispatch, kVerboseCreate, kVerboseExec};
  const std::string names[] = {"error", "dispatch", "create", "exec"};
  const Problem p = gemm();
  for (uint32_t flags = 0; flags <= kVerboseAll; ++flags) {
    Lines lines;
    Verbose v(flags, &collect, &lines, "about text");
    Lines expected;
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(v.on(events[i]), (flags & events[i]) != 0);
      VerboseLine line = exec_line(p);
      line.event = events[i];
      v.write(line);
      if ((flags & events[i]) != 0) expected.push_back(names[i]);
    }
    ASSERT_EQ(lines.size(), expected.empty() ? 0 : expected.size() + 2) << flags;
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(lines[i + 2].rfind("quern_verbose,v1," + expected[i] + ",", 0), 0u) << lines[i + 2];
    }
  }
}

TEST(Verbose, TimesHaveSixDecimals) {
  const struct {
    int64_t ns;
    const char* ms;
  } cases[] = {{0, "0.000000"},
               {1, "0.000001"},
               {999'999, "0.999999"},
               {1'000'000, "1.000000"},
               {60'000'000'010, "60000.000010"}};
  const Problem p = gemm();
  for (const auto& c : cases) {
    Lines lines;
    Verbose v(kVerboseExec, &collect, &lines, "");
    VerboseLine line = exec_line(p);
    line.ns = c.ns;
    v.write(line);
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[2].substr(lines[2].rfind(',') + 1), c.ms);
  }
}

TEST(Verbose, DetailIsANinthFieldAndKeepsTheLineSplittable) {
  Lines lines;
  Verbose v(kVerboseDispatch, &collect, &lines, "");
  const Problem p = gemm();
  VerboseLine line = exec_line(p);
  line.event = kVerboseDispatch;
  line.kernel = "amx,x";
  line.ns = -1;
  line.detail = "no tile state, so\nrefused";
  v.write(line);
  EXPECT_EQ(lines.at(2),
            "quern_verbose,v1,dispatch,int8_gemm,amx;x,int8_gemm/m:1/n:4096/k:64/thr:2,thr2,"
            "-,no tile state; so;refused");
}

TEST(Verbose, WithoutAProblemOrKernel) {
  Lines lines;
  Verbose v(kVerboseNone, &collect, &lines, "about text");
  v.write_always("jit_dump", "disk full");
  EXPECT_EQ(lines, (Lines{kTemplate, kInfo, "quern_verbose,v1,error,jit_dump,-,-,-,-,disk full"}));
}

TEST(Verbose, LongLinesAreCutVisibly) {
  Lines lines;
  Verbose v(kVerboseError, &collect, &lines, std::string(5000, 'a'));
  VerboseLine line;
  line.event = kVerboseError;
  const std::string detail(5000, 'd');
  line.detail = detail;
  v.write(line);
  ASSERT_EQ(lines.size(), 3u);
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(lines[i].size(), 1023u);
    EXPECT_EQ(lines[i].substr(1017), i == 1 ? "aaa..." : "ddd...");
  }
}

TEST(Verbose, ALineAllocatesNothing) {
  int64_t count = 0;
  Verbose v(
      kVerboseAll, [](void* user, const char*) { ++*static_cast<int64_t*>(user); }, &count,
      "about text");
  const Problem p = gemm();
  const VerboseLine line = exec_line(p);
  const int64_t before = test::allocations();
  for (int i = 0; i < 100; ++i) v.write(line);
  EXPECT_EQ(test::allocations(), before);
  EXPECT_EQ(count, 102);
}

TEST(Verbose, DefaultSinkIsStandardErrorWithOneLineEach) {
  const Problem p = gemm();
  testing::internal::CaptureStderr();
  Verbose v(kVerboseExec, nullptr, nullptr, "about text");
  v.write(exec_line(p));
  const std::string out = testing::internal::GetCapturedStderr();
  EXPECT_EQ(out, std::string(kTemplate) + "\n" + kInfo +
                     "\nquern_verbose,v1,exec,int8_gemm,int8_gemm.avx512,"
                     "int8_gemm/m:1/n:4096/k:64/thr:2,thr2,1.234567\n");
}

TEST(Verbose, ThreadsNeverMeetInTheSink) {
  Lines lines;  // unguarded on purpose: the sink is never called from two threads at once
  Verbose v(kVerboseExec, &collect, &lines, "about text");
  const Problem p = gemm();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) v.write(exec_line(p));
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(lines.size(), 802u);
  EXPECT_EQ(lines[0], kTemplate);
}

}  // namespace
}  // namespace quern
