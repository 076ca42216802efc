#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace quern::bench {

/// Median and median absolute deviation: what is left of a noisy machine when outliers may not
/// vote.
struct Stats {
  double median = 0;
  double mad = 0;
  int64_t count = 0;
};

double median(std::vector<double> samples);
Stats summarize(const std::vector<double>& samples);

/// How long one block of calls lasts.
struct BlockBudget {
  double seconds = 0.08;
  int min_calls = 3;
  double warm_seconds = 0.004;  ///< wakes parked workers, brings clocks and caches to their state
};

inline double microseconds_now() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Calls `call()` (true: go on) until the budget is spent, each call timed on its own;
/// microseconds. Empty when a call said false.
template <typename Call>
std::vector<double> time_block(const BlockBudget& budget, Call&& call) {
  const double warm_until = microseconds_now() + 1e6 * budget.warm_seconds;
  do {
    if (!call()) return {};
  } while (microseconds_now() < warm_until);
  std::vector<double> samples;
  double spent = 0;
  while (spent < 1e6 * budget.seconds || static_cast<int>(samples.size()) < budget.min_calls) {
    const double begin = microseconds_now();
    if (!call()) return {};
    const double took = microseconds_now() - begin;
    samples.push_back(took);
    spent += took;
  }
  return samples;
}

/// Seconds of CPU, machine-wide and of the processes that belong to the benchmark.
struct CpuUse {
  double wall = 0;
  double all = 0;
  double ours = 0;
  double peer = 0;

  /// `peer` 0: none.
  static CpuUse now(pid_t peer);
};

/// CPUs that others kept busy between the two (1.0: one whole CPU). Time stolen by the hypervisor
/// counts as theirs. Good to about two clock ticks (0.02 s) over the interval.
double foreign_cpus(const CpuUse& begin, const CpuUse& end);

/// More than this spoils a measurement on a few cores.
constexpr double kForeignLimit = 0.15;

}  // namespace quern::bench
