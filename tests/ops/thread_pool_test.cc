#include "quern/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/ops/phase_log.h"
#include "tests/ops/test_pools.h"

namespace quern {
namespace {

using test::check_phases;
using test::PhaseLog;

std::unique_ptr<PersistentPool> make_pool(int threads, bool pin = false) {
  auto pool = PersistentPool::create(threads, pin);
  EXPECT_TRUE(pool.ok()) << pool.status().message();
  return std::move(pool).value();
}

TEST(SerialPool, RunsEveryPhaseOnTheCaller) {
  SerialPool pool;
  EXPECT_EQ(pool.size(), 1);
  for (const int phases : {0, 1, 2, 5}) check_phases(pool, phases);
  std::thread::id seen;
  pool.run(
      1,
      [](void* ctx, int, int, int) {
        *static_cast<std::thread::id*>(ctx) = std::this_thread::get_id();
      },
      &seen);
  EXPECT_EQ(seen, std::this_thread::get_id());
}

TEST(ScriptedPool, KeepsTheContractInEveryOrder) {
  for (const auto order :
       {test::ScriptedPool::Order::kAscending, test::ScriptedPool::Order::kDescending,
        test::ScriptedPool::Order::kRandom}) {
    test::ScriptedPool pool(7, order, 3);
    check_phases(pool, 4);
    check_phases(pool, 2);
    EXPECT_EQ(pool.runs(), 2);
    EXPECT_EQ(pool.phases(), 6);
    EXPECT_EQ(pool.last_phases(), 2);
    EXPECT_EQ(pool.max_phases(), 4);
  }
  test::ScriptedPool given(std::vector<int>{2, 0, 1});
  std::vector<int> tids;
  given.run(
      1, [](void* ctx, int, int tid, int) { static_cast<std::vector<int>*>(ctx)->push_back(tid); },
      &tids);
  EXPECT_EQ(tids, (std::vector<int>{2, 0, 1}));
}

TEST(PersistentPool, ThreadCountOutOfRangeIsRefused) {
  for (const int threads : {-1, 0, 1025, INT32_MAX, INT32_MIN}) {
    const auto pool = PersistentPool::create(threads);
    ASSERT_FALSE(pool.ok());
    EXPECT_EQ(pool.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(pool.status().message(),
              "invalid argument: threads (" + std::to_string(threads) + ") must be in [1, 1024]");
  }
}

TEST(PersistentPool, PhasesAreOrderedForEveryThreadCount) {
  for (int threads = 1; threads <= 64; threads += threads < 18 ? 1 : 23) {
    SCOPED_TRACE(threads);
    const auto pool = make_pool(threads);
    ASSERT_EQ(pool->size(), threads);
    for (const int phases : {1, 2, 3, 8}) check_phases(*pool, phases);
  }
}

TEST(PersistentPool, NoPhasesNoCalls) {
  const auto pool = make_pool(3);
  const ThreadPool::PhaseFn fail = [](void*, int, int, int) { ADD_FAILURE(); };
  pool->run(0, fail, nullptr);
  pool->run(-1, fail, nullptr);
}

TEST(PersistentPool, CallerIsThreadZeroAndTidsKeepTheirThread) {
  const auto pool = make_pool(4);
  std::vector<std::thread::id> first(4);
  std::vector<std::thread::id> ids(4);
  const ThreadPool::PhaseFn note = [](void* ctx, int, int tid, int) {
    (*static_cast<std::vector<std::thread::id>*>(ctx))[static_cast<size_t>(tid)] =
        std::this_thread::get_id();
  };
  pool->run(1, note, &first);
  EXPECT_EQ(first[0], std::this_thread::get_id());
  for (int i = 0; i < 20; ++i) {
    pool->run(2, note, &ids);
    EXPECT_EQ(ids, first);
  }
}

// Sleeping threads, late threads and uneven phases: whoever counts wrongly or loses a wake-up fails
// or hangs. The delays straddle the time that workers spin.
TEST(PersistentPool, RandomDelaysLoseNothing) {
  const uint32_t seed = 20250730;
  std::mt19937 rng(seed);
  const auto pool = make_pool(3);
  struct Delayed {
    PhaseLog log;
    std::vector<int> us;
  };
  for (int round = 0; round < 150; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " round " + std::to_string(round));
    const int phases = static_cast<int>(rng() % 4) + 1;
    Delayed d{PhaseLog(phases, 3), {}};
    for (int i = 0; i < phases * 3; ++i) {
      d.us.push_back(rng() % 2 == 0 ? 0 : static_cast<int>(rng() % 200));
    }
    if (rng() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(rng() % 300));
    pool->run(
        phases,
        [](void* ctx, int phase, int tid, int nthreads) {
          auto& delayed = *static_cast<Delayed*>(ctx);
          const int us = delayed.us[static_cast<size_t>(phase * nthreads + tid)];
          if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
          PhaseLog::call(&delayed.log, phase, tid, nthreads);
        },
        &d);
    d.log.expect_each_once();
  }
}

TEST(PersistentPool, ConcurrentCallersAreSerialised) {
  const auto pool = make_pool(4);
  struct Shared {
    std::atomic<int> inside{0};
    std::atomic<int> overlaps{0};
    std::atomic<int64_t> calls{0};
  };
  Shared shared;
  struct Run {
    Shared* shared;
    std::atomic<int> arrived{0};
  };
  std::vector<std::thread> callers;
  constexpr int kCallers = 6;
  constexpr int kRuns = 50;
  for (int c = 0; c < kCallers; ++c) {
    callers.emplace_back([&] {
      for (int r = 0; r < kRuns; ++r) {
        Run run{&shared};
        pool->run(
            2,
            [](void* ctx, int phase, int tid, int nthreads) {
              auto& job = *static_cast<Run*>(ctx);
              // Between the first call of phase 0 and the last call of phase 1 no other run may be.
              if (phase == 0 && tid == 0 && job.shared->inside.fetch_add(1) != 0) {
                job.shared->overlaps.fetch_add(1);
              }
              job.shared->calls.fetch_add(1);
              const bool last = phase == 1 && job.arrived.fetch_add(1) + 1 == nthreads;
              if (last) job.shared->inside.fetch_sub(1);
            },
            &run);
      }
    });
  }
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(shared.overlaps.load(), 0);
  EXPECT_EQ(shared.calls.load(), int64_t{kCallers} * kRuns * 2 * 4);
}

TEST(PersistentPool, APoolMayRunInsideAnother) {
  const auto outer = make_pool(2);
  const auto inner = make_pool(3);
  struct Nest {
    ThreadPool* inner;
    std::atomic<int> calls{0};
  };
  Nest nest{inner.get()};
  for (int i = 0; i < 20; ++i) {
    outer->run(
        2,
        [](void* ctx, int, int, int) {
          auto& n = *static_cast<Nest*>(ctx);
          n.inner->run(
              2, [](void* c, int, int, int) { static_cast<Nest*>(c)->calls.fetch_add(1); }, &n);
        },
        &nest);
  }
  EXPECT_EQ(nest.calls.load(), 20 * 2 * 2 * 2 * 3);
}

TEST(PersistentPool, SeveralPoolsAtOnce) {
  std::vector<std::unique_ptr<PersistentPool>> pools;
  for (int i = 0; i < 3; ++i) pools.push_back(make_pool(2 + i));
  std::vector<std::thread> callers;
  for (auto& pool : pools) {
    callers.emplace_back([&pool] {
      for (int r = 0; r < 30; ++r) check_phases(*pool, 3);
    });
  }
  for (std::thread& t : callers) t.join();
}

TEST(PersistentPool, MayBeMadeAndDroppedWithoutARun) {
  for (int i = 0; i < 50; ++i) make_pool(1 + i % 5);
}

TEST(PersistentPool, PinnedWorkersStayOnOneCpuAndTheCallerIsNotMoved) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const auto pool = make_pool(3, true);
  std::vector<int> cpus(3, -1);
  pool->run(
      1,
      [](void* ctx, int, int tid, int) {
        cpu_set_t mask;
        if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
          (*static_cast<std::vector<int>*>(ctx))[static_cast<size_t>(tid)] = CPU_COUNT(&mask);
        }
      },
      &cpus);
  EXPECT_EQ(cpus[0], CPU_COUNT(&before));
  EXPECT_EQ(cpus[1], 1);
  EXPECT_EQ(cpus[2], 1);
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  check_phases(*pool, 3);
}

// A thousand runs must stay far from a crawl with more threads than CPUs. The bound is a guard
// against livelock (spinning threads that keep the working one off its CPU took minutes), not a
// speed claim.
TEST(PersistentPool, OversubscriptionDoesNotCrawlSlow) {
  for (const int threads : {16, 64}) {
    const auto pool = make_pool(threads);
    std::atomic<int64_t> calls{0};
    const auto start = std::chrono::steady_clock::now();
    for (int r = 0; r < 1000; ++r) {
      pool->run(
          1,
          [](void* ctx, int, int, int) { static_cast<std::atomic<int64_t>*>(ctx)->fetch_add(1); },
          &calls);
    }
    const double ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    RecordProperty("ms_threads_" + std::to_string(threads), std::to_string(ms));
    EXPECT_EQ(calls.load(), int64_t{threads} * 1000);
    EXPECT_LT(ms, 20'000) << threads << " threads";
  }
}

}  // namespace
}  // namespace quern
