#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace quern::inline v0 {

/// A lock that fork() cannot leave locked: it remembers the process that holds it, and in a child a
/// lock held by the parent's process is free, since the thread that would release it is not there.
/// What it guards must be fit for use at every moment. Never allocates.
class ProcessLock {
 public:
  class Hold {
   public:
    explicit Hold(ProcessLock& lock) noexcept : lock_(lock), pid_(lock.acquire()) {}
    /// Where the holder itself forked, a thread of the child may have the lock by now and keeps it.
    ~Hold() { lock_.release(pid_); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    ProcessLock& lock_;
    const int32_t pid_;
  };

 private:
  static constexpr int32_t kFree = 0;

  int32_t acquire() noexcept {
    const int32_t pid = ::getpid();
    for (;;) {
      int32_t holder = kFree;
      if (holder_.compare_exchange_strong(holder, pid, std::memory_order_acquire)) return pid;
      if (holder == pid) {
        holder_.wait(pid, std::memory_order_relaxed);
      } else if (holder_.compare_exchange_strong(holder, pid, std::memory_order_acquire)) {
        return pid;
      }
    }
  }
  void release(int32_t pid) noexcept {
    if (holder_.compare_exchange_strong(pid, kFree, std::memory_order_release)) {
      holder_.notify_one();
    }
  }

  std::atomic<int32_t> holder_{kFree};
};

}  // namespace quern::inline v0
