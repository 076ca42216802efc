// reliability.md, J1: no mapping of the process is ever writable and executable, looked at a
// thousand times a second while eight threads make a thousand real kernels and every listener
// hears of them.
#include <gtest/gtest.h>

#include <errno.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "jit/gdb_jit.h"
#include "jit/jitdump.h"
#include "jit/kernel_cache.h"
#include "jit/perf_map.h"
#include "tests/jit/config_matrix.h"
#include "tests/jit/fake_memory.h"
#include "tests/jit/proc_maps.h"
#include "tests/support/temp_dir.h"

namespace quern::jit {
namespace {

using test::TempDir;

/// Looks at all mappings every millisecond until it is destroyed.
class Watcher {
 public:
  Watcher() : thread_([this] { watch(); }) {}
  ~Watcher() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void finish() {
    stop_ = true;
    thread_.join();
  }
  /// Returns after a look that began after this call, however late the thread gets a CPU.
  void wait_for_a_look() const {
    const int before = looks;
    while (looks < before + 2) std::this_thread::yield();
  }
  std::atomic<int> looks{0};
  size_t most_executable = 0;  ///< private mappings that may be executed

 private:
  void watch() {
    auto next = std::chrono::steady_clock::now();
    for (bool last = false; !last;) {
      last = stop_;  // once more after the last kernel
      size_t executable = 0;
      for (const MapLine& line : proc_maps()) {
        const bool x = line.rights.find('x') != std::string::npos;
        EXPECT_FALSE(x && line.rights.find('w') != std::string::npos) << line.text;
        executable += x;
      }
      most_executable = std::max(most_executable, executable);
      ++looks;
      next += std::chrono::milliseconds(1);
      std::this_thread::sleep_until(next);
    }
  }
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class WriteXorExecute : public testing::TestWithParam<bool> {};

TEST_P(WriteXorExecute, WhileKernelsAreMade) {
  constexpr size_t kThreads = 8, kKernels = 1000;
  const TempDir dir;
  FakeMemory memory;
  if (GetParam()) memory.protect_error = EACCES;  // then through the memfd
  CodeRegistry registry;
  registry.add(std::make_shared<PerfMap>(dir.path()));
  registry.add(std::make_shared<JitDump>(dir.path()));
  registry.add(std::make_shared<GdbListener>());
  const std::vector<AnyKernel> all = every_kernel();
  ASSERT_GE(all.size(), kKernels);
  std::atomic<int> failures{0};
  Watcher watcher;
  {
    KernelCache cache(CodeMemory(memory), &registry);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (size_t i = t; i < kKernels; i += kThreads) {
          const AnyKernel& kernel = all[i * all.size() / kKernels];
          failures += !cache.get(kernel.name, kernel.make).ok();
        }
      });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(cache.stats().kernels, kKernels);
    watcher.wait_for_a_look();
  }
  watcher.finish();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(memory.live_mappings, 0);
  EXPECT_GT(watcher.looks.load(), 10);
  EXPECT_GT(watcher.most_executable, 100u) << "the watcher never saw the kernels";
  RecordProperty("looks", watcher.looks.load());
}

INSTANTIATE_TEST_SUITE_P(Ways, WriteXorExecute, testing::Bool(),
                         [](const auto& row) { return row.param ? "memfd" : "mprotect"; });

}  // namespace
}  // namespace quern::jit
