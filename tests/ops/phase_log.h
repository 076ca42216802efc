#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "quern/thread_pool.h"

namespace quern::test {

/// Notes every call, and checks the order of phases while the calls run: a call of phase p must see
/// all calls of phase p - 1 done, through plain memory, so that a missing barrier is a data race
/// for TSan as well as a wrong count here.
struct PhaseLog {
  PhaseLog(int phase_count, int threads)
      : phases(phase_count),
        calls(static_cast<size_t>(phase_count) * static_cast<size_t>(threads), 0),
        done(static_cast<size_t>(phase_count)) {}

  static void call(void* ctx, int phase, int tid, int nthreads) {
    auto& log = *static_cast<PhaseLog*>(ctx);
    if (phase > 0) {
      int before = 0;
      for (int t = 0; t < nthreads; ++t) before += log.at(phase - 1, t, nthreads);
      if (before != nthreads || log.done[static_cast<size_t>(phase - 1)].load() != nthreads) {
        log.order_faults.fetch_add(1);
      }
    }
    ++log.at(phase, tid, nthreads);
    log.done[static_cast<size_t>(phase)].fetch_add(1);
  }

  int& at(int phase, int tid, int nthreads) {
    return calls[static_cast<size_t>(phase) * static_cast<size_t>(nthreads) +
                 static_cast<size_t>(tid)];
  }

  void expect_each_once() const {
    EXPECT_EQ(order_faults.load(), 0);
    for (const int n : calls) ASSERT_EQ(n, 1);
  }

  int phases;
  std::vector<int> calls;
  std::vector<std::atomic<int>> done;
  std::atomic<int> order_faults{0};
};

inline void check_phases(ThreadPool& pool, int phases) {
  PhaseLog log(phases, pool.size());
  pool.run(phases, &PhaseLog::call, &log);
  log.expect_each_once();
}

}  // namespace quern::test
