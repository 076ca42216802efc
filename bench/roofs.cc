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

namespace quern::bench {
namespace {

constexpr size_t kBufferBytes = size_t{512} << 20;  // 16 times what a last-level cache slice holds
constexpr size_t kPrefetchAhead = 1024;             // measured best distance, per stream
constexpr int kStreams = 4;                         // 2 and 8 streams reach less
// Windows are shorter than a scheduler's time slice, so that some of them are whole even when other
// processes want the CPU; memory windows walk on through the buffer and never meet cached bytes.
constexpr size_t kMemoryWindowBytes = size_t{64} << 20;
constexpr int kMemoryWindows = 120;
constexpr double kComputeWindowSeconds = 0.002;
constexpr int kComputeWindows = 80;
constexpr size_t kEnoughWindows = 8;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// ---- register loops
// -------------------------------------------------------------------------------- 24 independent
// accumulators hide the latency of 4 cycles at two issues a cycle three times over. The sources are
// not zero, so that the multipliers do real work and draw real power.
constexpr double kDotsPerTurn = 24;
constexpr double kInt8OpsPerDot = 128;  // 64 products, 64 adds
constexpr double kBf16OpsPerDot = 64;

#define QUERN_ALL_ZMM                                                                           \
  "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10",      \
      "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", \
      "zmm21", "zmm22", "zmm23", "zmm24", "zmm25"

// The assembler's own loop writes the 24 lines; \\n is its counter.
#define QUERN_DOT_LOOP(mnemonic, turns, word)                                             \
  asm volatile(                                                                           \
      "vpbroadcastd %1, %%zmm24\n\t"                                                      \
      "vpbroadcastd %1, %%zmm25\n\t"                                                      \
      ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n\t"          \
      "vpxord %%zmm\\n, %%zmm\\n, %%zmm\\n\n\t"                                           \
      ".endr\n\t"                                                                         \
      ".p2align 6\n"                                                                      \
      "1:\n\t"                                                                            \
      ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n\t" mnemonic \
      " %%zmm24, %%zmm25, %%zmm\\n\n\t"                                                   \
      ".endr\n\t"                                                                         \
      "decq %0\n\t"                                                                       \
      "jnz 1b"                                                                            \
      : "+r"(turns)                                                                       \
      : "r"(word)                                                                         \
      : "cc", QUERN_ALL_ZMM)

__attribute__((target("avx512f,avx512vnni"), noinline)) void int8_dots(uint64_t turns) {
  const uint32_t bytes = 0x25a97b13;
  QUERN_DOT_LOOP("vpdpbusd", turns, bytes);
}

__attribute__((target("avx512f,avx512bf16"), noinline)) void bf16_dots(uint64_t turns) {
  const uint32_t pair = 0x3f35bf1d;  // 0.707 and -0.613: the sums stay finite
  QUERN_DOT_LOOP("vdpbf16ps", turns, pair);
}

#undef QUERN_DOT_LOOP
#undef QUERN_ALL_ZMM

// ---- memory readers ----------------------------------------------------------------------------
using Reader = void (*)(const std::byte* data, size_t bytes);

std::atomic<uint64_t> g_sink;  // keeps the loads alive

// `bytes` is a multiple of kStreams * 128.
__attribute__((target("avx512f"), noinline)) void read_avx512(const std::byte* data, size_t bytes) {
  const size_t stream = bytes / kStreams;
  __m512i sum[kStreams] = {};
  for (size_t i = 0; i < stream; i += 128) {
    for (int s = 0; s < kStreams; ++s) {
      const char* p = reinterpret_cast<const char*>(data) + s * stream + i;
      _mm_prefetch(p + kPrefetchAhead, _MM_HINT_T0);
      _mm_prefetch(p + kPrefetchAhead + 64, _MM_HINT_T0);
      sum[s] = _mm512_xor_si512(sum[s], _mm512_load_si512(p));
      sum[s] = _mm512_xor_si512(sum[s], _mm512_load_si512(p + 64));
    }
  }
  uint64_t lanes[8];
  _mm512_storeu_si512(
      lanes, _mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3])));
  g_sink.fetch_xor(lanes[0], std::memory_order_relaxed);
}

// For machines without AVX-512, so that the bandwidth is known there too.
void read_sse2(const std::byte* data, size_t bytes) {
  const size_t stream = bytes / kStreams;
  __m128i sum[kStreams] = {};
  for (size_t i = 0; i < stream; i += 64) {
    for (int s = 0; s < kStreams; ++s) {
      const char* p = reinterpret_cast<const char*>(data) + s * stream + i;
      _mm_prefetch(p + kPrefetchAhead, _MM_HINT_T0);
      for (int j = 0; j < 64; j += 16) {
        sum[s] = _mm_xor_si128(sum[s], _mm_load_si128(reinterpret_cast<const __m128i*>(p + j)));
      }
    }
  }
  const __m128i all = _mm_xor_si128(_mm_xor_si128(sum[0], sum[1]), _mm_xor_si128(sum[2], sum[3]));
  g_sink.fetch_xor(static_cast<uint64_t>(_mm_cvtsi128_si64(all)), std::memory_order_relaxed);
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

/// Rates of single windows, in units a second over all threads.
struct Rates {
  std::vector<double> clean;
  std::vector<double> disturbed;  ///< a thread lost its CPU meanwhile

  /// The upper quartile: what the machine does when nothing comes between, without the luck of one
  /// window.
  double roof() const {
    std::vector<double> rates = clean;
    if (clean.size() < kEnoughWindows) {
      rates.insert(rates.end(), disturbed.begin(), disturbed.end());
      return *std::max_element(rates.begin(), rates.end());
    }
    const auto quartile = rates.begin() + static_cast<ptrdiff_t>(rates.size() * 3 / 4);
    std::nth_element(rates.begin(), quartile, rates.end());
    return *quartile;
  }
};

/// All threads run `body(tid, window)` together, `windows` times; each does `units` in a window.
Rates rates_of(const std::vector<int>& cpus, int threads, int windows, double units,
               const std::function<void(int, int)>& body) {
  std::vector<double> start(threads), stop(threads);
  std::vector<long> preempted(threads);
  SpinBarrier barrier(threads);
  Rates rates;
  auto worker = [&](int tid) {
    pin_self(cpus[tid % cpus.size()]);
    for (int w = 0; w < windows; ++w) {
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
      const bool clean = std::count(preempted.begin(), preempted.end(), 0) == threads;
      (clean ? rates.clean : rates.disturbed).push_back(units * threads / (last - first));
    }
  };
  // Thread 0 is a new one too: pinning must not stick to the caller.
  std::vector<std::thread> pool;
  for (int tid = 0; tid < threads; ++tid) pool.emplace_back(worker, tid);
  for (std::thread& t : pool) t.join();
  return rates;
}

double peak_gops(const std::vector<int>& cpus, int threads, void (*dots)(uint64_t), double ops) {
  dots(100000);  // past the first-use cost of the wide registers
  double turn = 1;
  for (int i = 0; i < 5; ++i) {
    const double begin = seconds_now();
    dots(20000);
    turn = std::min(turn, (seconds_now() - begin) / 20000);
  }
  const uint64_t turns = static_cast<uint64_t>(kComputeWindowSeconds / turn) + 1;
  return 1e-9 * rates_of(cpus, threads, kComputeWindows,
                         static_cast<double>(turns) * kDotsPerTurn * ops,
                         [&](int, int) { dots(turns); })
                    .roof();
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

RoofMeter::RoofMeter(const IsaReport& report)
    : int8_(report.level >= IsaLevel::kAvx512),
      bf16_(report.level >= IsaLevel::kAvx512 && report.avx512_bf16),
      cpus_(usable_cpus()) {
  void* p = mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  (void)madvise(p, kBufferBytes, MADV_HUGEPAGE);
  std::memset(p, 1, kBufferBytes);  // real pages, not the shared zero page
  buffer_ = static_cast<std::byte*>(p);
}

RoofMeter::~RoofMeter() {
  munmap(buffer_, kBufferBytes);
}

Roofs RoofMeter::measure(int threads) const {
  Roofs roofs;
  roofs.threads = threads;
  // Each thread walks a part of its own; a window that would leave it begins again at its start.
  const size_t unit = kStreams * 128;
  const size_t part = kBufferBytes / threads / unit * unit;
  const size_t window = std::min(part, kMemoryWindowBytes / threads / unit * unit);
  const size_t windows_in_part = part / window;
  const Reader read = int8_ ? read_avx512 : read_sse2;
  roofs.dram_gbps =
      1e-9 *
      rates_of(cpus_, threads, kMemoryWindows, static_cast<double>(window), [&](int tid, int w) {
        read(buffer_ + tid * part + (w % windows_in_part) * window, window);
      }).roof();
  if (int8_) roofs.int8_gops = peak_gops(cpus_, threads, int8_dots, kInt8OpsPerDot);
  if (bf16_) roofs.bf16_gops = peak_gops(cpus_, threads, bf16_dots, kBf16OpsPerDot);
  return roofs;
}

}  // namespace quern::bench
