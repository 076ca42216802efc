#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "quern/thread_pool.h"

namespace quern::test {

/// Claims any number of threads and runs all of them one after the other on the calling thread, in
/// an order that the test chooses. Legal by the contract of ThreadPool, and the hardest legal pool
/// for an op: whoever waits inside a phase hangs, whoever relies on an order of tids is found out.
/// Counts runs and phases, so that a test can hold an op to "at most two barriers".
class ScriptedPool final : public ThreadPool {
 public:
  enum class Order {
    kAscending,
    kDescending,
    kRandom,  ///< a new permutation for every phase, from `seed`
  };

  explicit ScriptedPool(int threads, Order order = Order::kAscending, uint64_t seed = 1)
      : order_kind_(order), rng_(seed), order_(static_cast<size_t>(threads)) {
    std::iota(order_.begin(), order_.end(), 0);
    if (order == Order::kDescending) std::reverse(order_.begin(), order_.end());
  }

  /// `order` is a permutation of 0 .. order.size() - 1, used for every phase.
  explicit ScriptedPool(std::vector<int> order)
      : order_kind_(Order::kAscending), order_(std::move(order)) {}

  int size() const noexcept override { return static_cast<int>(order_.size()); }

  void run(int phases, PhaseFn fn, void* ctx) noexcept override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (int phase = 0; phase < phases; ++phase) {
      if (order_kind_ == Order::kRandom) std::shuffle(order_.begin(), order_.end(), rng_);
      for (const int tid : order_) fn(ctx, phase, tid, size());
    }
    ++runs_;
    phases_ += phases;
    last_phases_ = phases;
    max_phases_ = std::max<int>(max_phases_, phases);
  }

  /// Calls of run() so far.
  int64_t runs() const noexcept { return runs_; }
  /// Phases of all runs together, of the latest run, and of the run that had the most. A run of p
  /// phases has p - 1 barriers inside.
  int64_t phases() const noexcept { return phases_; }
  int last_phases() const noexcept { return last_phases_; }
  int max_phases() const noexcept { return max_phases_; }
  void reset_counters() noexcept {
    runs_ = 0;
    phases_ = 0;
    last_phases_ = 0;
    max_phases_ = 0;
  }

 private:
  std::mutex mutex_;
  Order order_kind_;
  std::mt19937_64 rng_;
  std::vector<int> order_;
  std::atomic<int64_t> runs_{0};
  std::atomic<int64_t> phases_{0};
  std::atomic<int> last_phases_{0};
  std::atomic<int> max_phases_{0};
};

}  // namespace quern::test
