// What people see: the real gdb and the real perf look at a program that calls a generated kernel.
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>

#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "tests/jit/busy_kernel.h"
#include "tests/support/temp_dir.h"

namespace quern::jit {
namespace {

using test::TempDir;

/// Standard output and error of a shell command, which is stopped after a minute.
std::string output_of(const std::string& command) {
  std::string text;
  // Under AddressSanitizer the search for leaks would fail in a traced program.
  FILE* pipe = popen(
      ("ASAN_OPTIONS=detect_leaks=0 timeout 60 sh -c '" + command + "' 2>&1 </dev/null").c_str(),
      "r");
  if (pipe == nullptr) return text;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  pclose(pipe);
  return text;
}

bool installed(const std::string& program) {
  return !output_of("command -v " + program).empty();
}

bool no_ptrace(const std::string& text) {
  return text.find("ptrace") != std::string::npos ||
         text.find("Could not trace") != std::string::npos;
}

class DebuggerTest : public testing::Test {
 protected:
  /// gdb's output for a script on the program with these arguments.
  std::string gdb(const std::string& script, const std::string& arguments) {
    std::ofstream(dir_.file("script")) << "set pagination off\nset width 0\nset confirm off\n"
                                       << script;
    // HOME: gdb would otherwise read what its user keeps there.
    return output_of("HOME=" + dir_.path() + " gdb -nx -batch -x " + dir_.file("script") +
                     " --args " QUERN_PROFILE_TARGET " " + arguments);
  }
  TempDir dir_;
};

// From the first instruction of the kernel to its return, one instruction at a time: at each, the
// innermost frame has the kernel's name and the next two are its callers.
TEST_F(DebuggerTest, GdbWalksThroughAKernelAtEveryInstruction) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "at the sanitizers' -O1 Kernel::call is a frame of its own";
#endif
  if (!installed("gdb")) GTEST_SKIP() << "not run: gdb is not installed";
  const auto code = generate_busy(true);
  ASSERT_TRUE(code.ok());
  // The trap is the first byte and gdb stops behind it.
  const std::string text = gdb(
      "run\nset $begin = (long)$pc - 1\nset $end = $begin + " + std::to_string(code->bytes.size()) +
          "\nwhile (long)$pc >= $begin && (long)$pc < $end\n  backtrace\n  stepi\nend\n"
          "continue\n",
      "trap gdb");
  if (no_ptrace(text)) GTEST_SKIP() << "not run: no process may be traced here";
  // With and without debug information about the callers, whose frames gdb then writes differently.
  const std::pair<const char*, std::string> frames[] = {{"#0 ", BusyKernel::name()},
                                                        {"#1 ", "quern::jit::innermost_caller"},
                                                        {"#2 ", "quern::jit::outer_caller"},
                                                        {"#3 ", "main"}};
  for (const auto& [number, name] : frames) {
    int steps = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind(number, 0) != 0) continue;
      ++steps;
      const size_t at = line.find(' ' + name);
      ASSERT_NE(at, std::string::npos) << line;
      const std::string rest = line.substr(at + 1 + name.size(), 2);
      EXPECT_TRUE(rest[0] == '(' || rest == " (") << line;
    }
    EXPECT_GE(steps, 27) << text;  // 6 pushes, 13 in the body without padding, 8 of the return
  }
  EXPECT_NE(text.find("done"), std::string::npos) << text;
}

TEST_F(DebuggerTest, GdbBreaksAtAKernelByItsName) {
  if (!installed("gdb")) GTEST_SKIP() << "not run: gdb is not installed";
  const std::string text =
      gdb("set breakpoint pending on\nbreak "
          "\"" +
              BusyKernel::name() + "\"\nrun\ninfo symbol $pc\ndelete\nkill\n",
          "spin gdb");
  if (no_ptrace(text)) GTEST_SKIP() << "not run: no process may be traced here";
  EXPECT_NE(text.find("Breakpoint 1, "), std::string::npos) << text;
  EXPECT_NE(text.find(BusyKernel::name() + " in section .text"), std::string::npos) << text;
}

TEST_F(DebuggerTest, GdbKnowsNothingWithoutTheListener) {
  if (!installed("gdb")) GTEST_SKIP() << "not run: gdb is not installed";
  const std::string text = gdb("run\nbacktrace\nkill\n", "trap none");
  if (no_ptrace(text)) GTEST_SKIP() << "not run: no process may be traced here";
  EXPECT_EQ(text.find(BusyKernel::name()), std::string::npos) << text;
}

class PerfTest : public testing::Test {
 protected:
  /// The lines of a report about a run of the program, or nothing where perf cannot record here.
  bool record(const std::string& switches, const std::string& arguments) {
    log_ = output_of(perf("record " + switches + " -e cpu-clock:u -o " + data() + " " +
                          QUERN_PROFILE_TARGET " " + arguments));
    return log_.find("done") != std::string::npos && access(data().c_str(), R_OK) == 0;
  }
  /// perf keeps copies of what it saw; HOME and the directory keep them out of the user's own.
  std::string perf(const std::string& command) const {
    return "HOME=" + dir_.path() + " perf --buildid-dir " + dir_.path() + "/buildid " + command;
  }
  std::string data() const { return dir_.file("perf.data"); }

  TempDir dir_;
  std::string log_;
};

TEST_F(PerfTest, ReportNamesTheKernelFromThePerfMap) {
  if (!installed("perf")) GTEST_SKIP() << "not run: perf is not installed";
  if (!record("", "spin perf")) GTEST_SKIP() << "not run: perf cannot record here: " << log_;
  const std::string report = output_of(perf("report --stdio -F overhead,pid,sym -i " + data()));
  EXPECT_NE(report.find(BusyKernel::name()), std::string::npos) << report;
  // perf leaves the process's number in the report; the file in /tmp is ours to remove.
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    const size_t percent = line.find('%');
    if (percent == std::string::npos || colon == std::string::npos) continue;
    const int pid = atoi(line.substr(percent + 1, colon - percent - 1).c_str());
    if (pid > 0) (void)remove(("/tmp/perf-" + std::to_string(pid) + ".map").c_str());
  }
}

TEST_F(PerfTest, AnnotateShowsInstructionsAndSectionsFromTheJitdump) {
  if (!installed("perf")) GTEST_SKIP() << "not run: perf is not installed";
  if (!record("-k 1", "spin jitdump " + dir_.path())) {
    GTEST_SKIP() << "not run: perf cannot record here: " << log_;
  }
  const std::string injected = dir_.file("injected.data");
  const std::string log = output_of(perf("inject --jit -i " + data() + " -o " + injected));
  ASSERT_EQ(access(injected.c_str(), R_OK), 0) << log;
  const std::string report = output_of(perf("report --stdio -s dso,sym -i " + injected));
  EXPECT_NE(report.find("jitted-"), std::string::npos) << report;
  EXPECT_NE(report.find(BusyKernel::name()), std::string::npos) << report;
  if (!installed("objdump")) GTEST_SKIP() << "not run to the end: perf annotate needs objdump";
  const std::string listing =
      output_of(perf("annotate --stdio -i " + injected + " -s " + BusyKernel::name()));
  for (const char* part : {"prologue:1", "spin:2", "return:3", "outlying:4", "vzeroupper"}) {
    EXPECT_NE(listing.find(part), std::string::npos) << part << " is not in\n" << listing;
  }
}

}  // namespace
}  // namespace quern::jit
