#include "bench/roofs.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <new>
#include <thread>

#include "bench/roof_loops.h"

namespace quern::bench {
namespace {

// Windows are shorter than a scheduler's time slice, so that some of them are whole even when other
// processes want the CPU; memory windows walk on through the buffer and never meet cached bytes.
constexpr size_t kMemoryWindowBytes = size_t{64} << 20;
constexpr int kMemoryWindows = 60;  // of each way to read
constexpr int kMemoryNowWindows = 8;
constexpr double kComputeWindowSeconds = 0.002;
constexpr int kComputeWindows = 80;
constexpr size_t kEnoughWindows = 8;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// ---- windows -----------------------------------------------------------------------------------
void pin_self(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // Without the right to be pinned the thread floats, which costs a little accuracy and nothing
  // else.
  (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/// Threads leave together, within a cache miss of each other: the windows are milliseconds long.
class SpinBarrier {
 public:
  explicit SpinBarrier(int threads) : threads_(threads) {}

  void wait() {
    const int now = generation_.load();
    if (waiting_.fetch_add(1) + 1 == threads_) {
      waiting_.store(0);
      generation_.store(now + 1);
      return;
    }
    for (int spins = 0; generation_.load() == now; ++spins) {
      if (spins < 20000) {
        _mm_pause();
      } else {
        sched_yield();  // more threads than CPUs
      }
    }
  }

 private:
  const int threads_;
  std::atomic<int> waiting_{0};
  std::atomic<int> generation_{0};
};

long preemptions_of_this_thread() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

/// What one window did.
struct Window {
  double rate = 0;     ///< units a second over all threads
  bool clean = false;  ///< no thread lost its CPU meanwhile
};

/// The upper quartile of the windows `first`, `first + step`, ...: what the machine does when
/// nothing comes between, without the luck of one window.
double roof_of(const std::vector<Window>& windows, size_t first = 0, size_t step = 1) {
  std::vector<double> clean, all;
  for (size_t i = first; i < windows.size(); i += step) {
    all.push_back(windows[i].rate);
    if (windows[i].clean) clean.push_back(windows[i].rate);
  }
  if (clean.size() < kEnoughWindows) return *std::max_element(all.begin(), all.end());
  const auto quartile = clean.begin() + static_cast<ptrdiff_t>(clean.size() * 3 / 4);
  std::nth_element(clean.begin(), quartile, clean.end());
  return *quartile;
}

/// All threads run `body(tid, window)` together, `count` times; each does `units` in a window.
std::vector<Window> run_windows(const std::vector<int>& cpus, int threads, int count, double units,
                                const std::function<void(int, int)>& body) {
  std::vector<double> start(threads), stop(threads);
  std::vector<long> preempted(threads);
  SpinBarrier barrier(threads);
  std::vector<Window> windows;
  auto worker = [&](int tid) {
    pin_self(cpus[tid % cpus.size()]);
    for (int w = 0; w < count; ++w) {
      barrier.wait();
      const long before = preemptions_of_this_thread();
      start[tid] = seconds_now();
      body(tid, w);
      stop[tid] = seconds_now();
      preempted[tid] = preemptions_of_this_thread() - before;
      barrier.wait();
      if (tid != 0) continue;
      const double first = *std::min_element(start.begin(), start.end());
      const double last = *std::max_element(stop.begin(), stop.end());
      windows.push_back({units * threads / (last - first),
                         std::count(preempted.begin(), preempted.end(), 0) == threads});
    }
  };
  // Thread 0 is a new one too: pinning must not stick to the caller.
  std::vector<std::thread> pool;
  for (int tid = 0; tid < threads; ++tid) pool.emplace_back(worker, tid);
  for (std::thread& t : pool) t.join();
  return windows;
}

double peak_gops(const std::vector<int>& cpus, int threads, const IssueLoop& loop) {
  loop.run(20000);  // past the first-use cost of the wide registers
  double turn = 1;
  for (int i = 0; i < 5; ++i) {
    const double begin = seconds_now();
    loop.run(2000);
    turn = std::min(turn, (seconds_now() - begin) / 2000);
  }
  const uint64_t turns = static_cast<uint64_t>(kComputeWindowSeconds / turn) + 1;
  return 1e-9 * roof_of(run_windows(cpus, threads, kComputeWindows,
                                    static_cast<double>(turns) * loop.ops_per_turn,
                                    [&](int, int) { loop.run(turns); }));
}

std::vector<int> usable_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) cpus.push_back(i);
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

}  // namespace

RoofMeter::RoofMeter(const IsaReport& report, size_t buffer_bytes)
    : level_(report.level),
      bf16_(report.level >= IsaLevel::kAvx512 && report.avx512_bf16),
      cpus_(usable_cpus()),
      buffer_bytes_(buffer_bytes) {
  void* p =
      mmap(nullptr, buffer_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  (void)madvise(p, buffer_bytes_, MADV_HUGEPAGE);
  std::memset(p, 1, buffer_bytes_);  // real pages, not the shared zero page
  buffer_ = static_cast<std::byte*>(p);
}

RoofMeter::~RoofMeter() {
  munmap(buffer_, buffer_bytes_);
}

double RoofMeter::read_gbps(int threads, int windows_of_each_way) const {
  // Each thread walks a part of its own; a window that would leave it begins again at its start.
  // The ways to read take turns, so that all of them see the same machine.
  const size_t part = buffer_bytes_ / static_cast<size_t>(threads) / kReadUnit * kReadUnit;
  const size_t window =
      std::min(part, kMemoryWindowBytes / static_cast<size_t>(threads) / kReadUnit * kReadUnit);
  const size_t windows_in_part = part / window;
  const std::span<const Reader> ways = readers(level_ >= IsaLevel::kAvx512);
  const std::vector<Window> windows =
      run_windows(cpus_, threads, windows_of_each_way * static_cast<int>(ways.size()),
                  static_cast<double>(window), [&](int tid, int w) {
                    const size_t at = static_cast<size_t>(w) % windows_in_part * window;
                    ways[static_cast<size_t>(w) % ways.size()](
                        buffer_ + static_cast<size_t>(tid) * part + at, window);
                  });
  double best = 0;
  for (size_t way = 0; way < ways.size(); ++way) {
    best = std::max(best, roof_of(windows, way, ways.size()));
  }
  return 1e-9 * best;
}

double RoofMeter::memory_now(int threads) const {
  return read_gbps(threads, kMemoryNowWindows);
}

Roofs RoofMeter::measure(int threads) const {
  Roofs roofs;
  roofs.threads = threads;
  roofs[Roof::kDram] = read_gbps(threads, kMemoryWindows);
  const auto peak = [&](Roof roof, bool usable, const IssueLoop& loop) {
    if (usable) roofs[roof] = peak_gops(cpus_, threads, loop);
  };
  peak(Roof::kVnni, level_ >= IsaLevel::kAvx512, kVnniLoop);
  peak(Roof::kBf16Dot, bf16_, kBf16DotLoop);
  peak(Roof::kF32Fma, level_ >= IsaLevel::kAvx512, kF32FmaLoop);
  peak(Roof::kAmxInt8, level_ >= IsaLevel::kAmx, kAmxInt8Loop);
  peak(Roof::kAmxBf16, level_ >= IsaLevel::kAmx, kAmxBf16Loop);
  return roofs;
}

}  // namespace quern::bench
