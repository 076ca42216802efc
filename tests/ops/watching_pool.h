#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "quern/thread_pool.h"

namespace quern::test {

/// Runs one tid at a time on the calling thread and lets the test look at memory in between: who
/// wrote what.
class WatchingPool final : public ThreadPool {
 public:
  explicit WatchingPool(int threads) : threads_(threads) {}
  int size() const noexcept override { return threads_; }
  void run(int phases, PhaseFn fn, void* ctx) noexcept override {
    for (int phase = 0; phase < phases; ++phase) {
      for (int tid = 0; tid < threads_; ++tid) {
        fn(ctx, phase, tid, threads_);
        if (after) after(tid);
      }
    }
  }
  std::function<void(int tid)> after;

 private:
  int threads_;
};

/// Whose the bytes of scratch are. A byte that two threads change would be a data race, had they
/// run at once.
class ByteOwners {
 public:
  explicit ByteOwners(const std::vector<std::byte>& memory)
      : memory_(memory), before_(memory), owners_(memory.size(), kNobody) {}

  /// What has changed since the last look was `tid`.
  void look(int tid) {
    for (size_t i = 0; i < before_.size(); ++i) {
      if (memory_[i] == before_[i]) continue;
      if (owners_[i] != kNobody && owners_[i] != tid) ++shared_;
      owners_[i] = tid;
      threads_.insert(tid);
    }
    before_ = memory_;
  }
  /// Changes of another thread's bytes.
  int64_t shared() const noexcept { return shared_; }
  /// Threads that changed any.
  size_t threads() const noexcept { return threads_.size(); }

 private:
  static constexpr int kNobody = -1;

  const std::vector<std::byte>& memory_;
  std::vector<std::byte> before_;
  std::vector<int> owners_;
  std::set<int> threads_;
  int64_t shared_ = 0;
};

}  // namespace quern::test
