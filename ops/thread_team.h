#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "quern/status.h"
#include "quern/thread_pool.h"

namespace quern::inline v0 {

/// Tells the process that made it from a forked child of that process. One load where the kernel
/// can wipe a page on fork; getpid() elsewhere (a system call, about a microsecond under some
/// sandboxes, hence the page). Catches raw clone() as well, which pthread_atfork does not.
class ForkSentinel {
 public:
  ForkSentinel() noexcept;
  ~ForkSentinel();
  ForkSentinel(const ForkSentinel&) = delete;
  ForkSentinel& operator=(const ForkSentinel&) = delete;

  bool same_process() const noexcept;

 private:
  const pid_t pid_;
  std::atomic<uint32_t>* page_ = nullptr;  ///< 1 in our process, 0 in a child; null: use pid_
};

/// A counter that threads wait on, first spinning, then asleep in the kernel.
class alignas(128) WaitWord {
 public:
  uint32_t load() const noexcept { return value_.load(std::memory_order_acquire); }
  /// Publishes `value` and wakes whoever sleeps.
  void set(uint32_t value) noexcept;
  /// Returns once the word differs from `old`; everything written before that set() is visible.
  void wait_while(uint32_t old, int64_t spin_ns) noexcept;

 private:
  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
};

struct TeamOptions {
  int threads = 1;
  bool pin = false;
  /// How workers are started; tests put a function that fails in its place.
  using StartFn = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  StartFn start = &pthread_create;
};

/// The workers of one PersistentPool in one process. After fork() the child has none of them, and
/// its copies of mutex and words are in whatever state they were in: the pool then makes a new team
/// and keeps the old one only to free its memory.
///
/// One run is one region: start_ releases the workers into phase 0, and after each phase everybody
/// counts down in arrive(); the last one sets phase_, which the others wait for. After the last
/// phase only the caller waits for it, the workers go straight back to start_.
class ThreadTeam {
 public:
  /// Starts nothing. `previous` is the team this one replaces after a fork.
  explicit ThreadTeam(const TeamOptions& options, ThreadTeam* previous = nullptr);
  /// Stops and joins the workers, unless they stayed behind in a parent process.
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  /// All workers or none.
  Status start() noexcept;
  /// Starts the workers when there are none yet (after a fork); where that fails the calling thread
  /// does everybody's share.
  void run(int phases, ThreadPool::PhaseFn fn, void* ctx) noexcept;

  int size() const noexcept { return options_.threads; }
  bool same_process() const noexcept { return sentinel_.same_process(); }
  /// Used once, when the owner takes the chain apart.
  ThreadTeam* previous() const noexcept { return previous_; }

 private:
  struct Job {
    int phases = 0;
    ThreadPool::PhaseFn fn = nullptr;
    void* ctx = nullptr;
  };
  struct Worker {
    ThreadTeam* team = nullptr;
    int tid = 0;
    pthread_t thread{};
  };
  struct alignas(128) Countdown {
    std::atomic<int> left{0};
    int full = 0;
  };

  Status start_locked() noexcept;
  Status start_worker(Worker* worker, pthread_attr_t* attr, const std::vector<int>& cpus) noexcept;
  void stop_locked(int started) noexcept;
  static void* worker_main(void* worker);
  void work(int tid, uint32_t* epoch) noexcept;
  void arrive(int tid, uint32_t epoch) noexcept;

  const TeamOptions options_;
  ThreadTeam* const previous_;
  const ForkSentinel sentinel_;
  int64_t spin_ns_ = 0;

  std::mutex mutex_;  ///< one run at a time; guards everything down to workers_
  bool started_ = false;
  uint32_t run_ = 0;
  uint32_t epoch_ = 0;  ///< the calling thread's count of barriers
  std::vector<Worker> workers_;

  Job job_;            ///< written before start_ is set, constant during a run
  bool stop_ = false;  ///< likewise
  WaitWord start_;
  WaitWord phase_;
  std::vector<Countdown> groups_;
  Countdown root_;
};

}  // namespace quern::inline v0
