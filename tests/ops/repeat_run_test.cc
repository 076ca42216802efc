// reliability.md, T2: three processes give the same bits, wherever the loader and the allocator put
// things. The program runs itself three times, with address space randomization on and environments
// of different sizes (which move the stack), and compares what the runs print.
//   quern_repeat_run            run and compare; exit 0 equal, 1 not, 77 no level to test here
//   quern_repeat_run --print    the lines of one run
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "quern/thread_pool.h"
#include "tests/ops/gemm_case.h"
#include "tests/support/isa_list.h"

namespace quern::test {
namespace {

constexpr int kCases = 500;
constexpr int kProcesses = 3;
constexpr int kNothingToTest = 77;

uint64_t fnv1a(const std::vector<uint32_t>& words) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const uint32_t word : words) hash = (hash ^ word) * 0x100000001b3u;
  return hash;
}

/// One line a case: its hash, and which case it is. The first line tells where things are.
int print_run() {
  const int on_stack = 0;
  const std::vector<int> on_heap(1);
  std::printf("addresses %p %p %p\n", static_cast<const void*>(&on_stack),
              static_cast<const void*>(on_heap.data()), reinterpret_cast<void*>(&print_run));
  auto pool = PersistentPool::create(3);
  if (!pool.ok()) return 1;
  for (const TestIsa& isa : isas_to_test()) {
    if (!isa.skip_reason.empty()) continue;
    const Context ctx = context_at(isa, pool->get());
    for (uint64_t i = 0; i < kCases; ++i) {
      const GemmCase c = random_case(i % 2 == 0 ? "bf16_gemm" : "int8_gemm", 7000 + i);
      const auto hash = static_cast<unsigned long long>(fnv1a(bits_in(ctx, c)));
      std::printf("%016llx %s %s\n", hash, isa.name.c_str(), to_string(c).c_str());
    }
  }
  return ::testing::Test::HasFailure() ? 1 : 0;
}

struct Output {
  std::string addresses;
  std::string results;
  int exit_code = -1;
};

std::string line_at(const std::string& text, size_t begin) {
  return text.substr(begin, text.find('\n', begin) - begin);
}

void print_first_difference(const std::string& a, const std::string& b) {
  size_t begin = 0;
  while (begin < a.size() && begin < b.size() && line_at(a, begin) == line_at(b, begin)) {
    begin += line_at(a, begin).size() + 1;
  }
  std::printf("differs:\n  %s\n  %s\n", begin < a.size() ? line_at(a, begin).c_str() : "-",
              begin < b.size() ? line_at(b, begin).c_str() : "-");
}

/// Runs this program with --print and `padding` bytes more in its environment.
Output run_again(size_t padding) {
  int ends[2];
  Output output;
  if (pipe(ends) != 0) return output;
  const pid_t child = fork();
  if (child == 0) {
    // A debugger or a build system may have switched randomization off.
    const int persona = personality(0xffffffff);
    if (persona != -1) personality(static_cast<unsigned long>(persona & ~ADDR_NO_RANDOMIZE));
    setenv("QUERN_TEST_PADDING", std::string(padding, 'x').c_str(), 1);
    dup2(ends[1], 1);
    close(ends[0]);
    close(ends[1]);
    execl("/proc/self/exe", "quern_repeat_run", "--print", static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ends[1]);
  char buffer[4096];
  std::string all;
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
    all.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return output;
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  const size_t line = all.find('\n') + 1;
  output.addresses = all.substr(0, line);
  output.results = all.substr(line);
  return output;
}

int compare_runs() {
  std::set<std::string> places;
  std::string first;
  for (int i = 0; i < kProcesses; ++i) {
    const Output run = run_again(static_cast<size_t>(i) * 20011);
    if (run.exit_code != 0) {
      std::printf("process %d ended with %d\n", i, run.exit_code);
      return 1;
    }
    places.insert(run.addresses);
    if (i == 0) first = run.results;
    if (run.results != first) {
      print_first_difference(first, run.results);
      return 1;
    }
  }
  long cases = 0;
  for (const char ch : first) cases += ch == '\n' ? 1 : 0;
  std::printf("%ld cases, %d processes, %zu different placements: equal\n", cases, kProcesses,
              places.size());
  if (cases == 0) return kNothingToTest;
  if (places.size() < 2) {
    std::printf("all processes had the same addresses: nothing was tested\n");
    return 1;
  }
  return cases % kCases == 0 ? 0 : 1;
}

}  // namespace
}  // namespace quern::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc > 1 && std::strcmp(argv[1], "--print") == 0) return quern::test::print_run();
  return quern::test::compare_runs();
}
