#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quern/thread_pool.h"

namespace quern::test {

/// Runs its threads one after the other on the calling thread and looks at memory behind each:
/// bytes that two threads of one phase changed would be a data race, had they run at once.
class WatchedPool final : public ThreadPool {
 public:
  explicit WatchedPool(int threads) : threads_(threads) {}

  void watch(const std::vector<std::byte>& memory) { memory_ = &memory; }
  int size() const noexcept override { return threads_; }

  void run(int phases, PhaseFn fn, void* ctx) noexcept override {
    for (int phase = 0; phase < phases; ++phase) {
      std::vector<bool> taken(memory_->size());
      for (int tid = 0; tid < threads_; ++tid) {
        const std::vector<std::byte> before = *memory_;
        fn(ctx, phase, tid, threads_);
        int64_t changed = 0;
        for (size_t i = 0; i < before.size(); ++i) {
          if (before[i] == (*memory_)[i]) continue;
          ++changed;
          if (taken[i]) ++shared_;
          taken[i] = true;
        }
        if (changed != 0) ++writers_;
      }
    }
  }

  /// Bytes that more than one thread of a phase changed.
  int64_t shared() const noexcept { return shared_; }
  /// How often a thread of a phase changed any.
  int writers() const noexcept { return writers_; }

 private:
  const std::vector<std::byte> nothing_;
  const std::vector<std::byte>* memory_ = &nothing_;
  int threads_;
  int64_t shared_ = 0;
  int writers_ = 0;
};

}  // namespace quern::test
