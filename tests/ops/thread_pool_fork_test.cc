#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "ops/thread_team.h"
#include "quern/thread_pool.h"
#include "tests/ops/fork_child.h"

#if defined(__SANITIZE_THREAD__)
#define QUERN_SKIP_UNDER_TSAN() \
  GTEST_SKIP() << "ThreadSanitizer does not support threads started in a forked child"
#else
#define QUERN_SKIP_UNDER_TSAN() (void)0
#endif

namespace quern {
namespace {

// True when three phases ran with every tid once, each on a thread of its own.
bool pool_works(ThreadPool& pool) {
  struct Seen {
    std::atomic<int> calls{0};
    std::atomic<bool> own_thread{true};
    std::thread::id caller = std::this_thread::get_id();
  };
  Seen seen;
  pool.run(
      3,
      [](void* ctx, int, int tid, int) {
        auto& s = *static_cast<Seen*>(ctx);
        s.calls.fetch_add(1);
        if ((std::this_thread::get_id() == s.caller) != (tid == 0)) s.own_thread = false;
      },
      &seen);
  const bool works = seen.calls.load() == 3 * pool.size() && seen.own_thread.load();
  if (!works) {  // often in a child, of which the parent learns no more than an exit status
    fprintf(stderr, "pool of %d: %d calls, each on a thread of its own: %s\n", pool.size(),
            seen.calls.load(), seen.own_thread.load() ? "yes" : "no");
  }
  return works;
}

std::unique_ptr<PersistentPool> make_pool(int threads) {
  return std::move(PersistentPool::create(threads)).value();
}

TEST(PoolFork, SentinelTellsTheChild) {
  const ForkSentinel sentinel;
  EXPECT_TRUE(sentinel.same_process());
  EXPECT_TRUE(test::in_child([&] { return !sentinel.same_process(); }));
  EXPECT_TRUE(sentinel.same_process());
}

TEST(PoolFork, ChildGetsWorkersOfItsOwn) {
  QUERN_SKIP_UNDER_TSAN();
  const auto pool = make_pool(3);
  ASSERT_TRUE(pool_works(*pool));
  EXPECT_TRUE(test::in_child([&] { return pool_works(*pool) && pool_works(*pool); }));
  EXPECT_TRUE(pool_works(*pool));
}

TEST(PoolFork, PoolNeverUsedByTheParentWorksToo) {
  QUERN_SKIP_UNDER_TSAN();
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a worker that is still starting may hold AddressSanitizer's locks at the fork";
#endif
  const auto pool = make_pool(2);
  EXPECT_TRUE(test::in_child([&] { return pool_works(*pool); }));
}

TEST(PoolFork, FourLevelsDeep) {
  QUERN_SKIP_UNDER_TSAN();
  const auto pool = make_pool(2);
  std::function<bool(int)> descend = [&](int level) {
    if (!pool_works(*pool)) return false;
    return level == 0 || (test::in_child([&] { return descend(level - 1); }) && pool_works(*pool));
  };
  EXPECT_TRUE(descend(4));
}

TEST(PoolFork, ChildMayDestroyAnInheritedPool) {
  QUERN_SKIP_UNDER_TSAN();
  for (const bool use_it_first : {false, true}) {
    auto pool = make_pool(3);
    ASSERT_TRUE(pool_works(*pool));
    EXPECT_TRUE(test::in_child([&] {
      const bool works = !use_it_first || pool_works(*pool);
      pool.reset();
      return works;
    }));
    EXPECT_TRUE(pool_works(*pool));
  }
}

// The child's copy of the pool is locked and in the middle of a run: that must not matter.
TEST(PoolFork, ForkWhileAnotherThreadRuns) {
  QUERN_SKIP_UNDER_TSAN();
  const auto pool = make_pool(2);
  std::atomic<bool> stop{false};
  std::atomic<int64_t> runs{0};
  std::thread busy([&] {
    while (!stop) {
      pool_works(*pool);
      ++runs;
    }
  });
  // A thread that is still starting may hold locks of a sanitizer's runtime, which its children
  // would inherit.
  while (runs == 0) std::this_thread::yield();
  int good = 0;
  for (int i = 0; i < 20; ++i) good += test::in_child([&] { return pool_works(*pool); });
  stop = true;
  busy.join();
  EXPECT_EQ(good, 20);
}

TEST(PoolFork, SeveralThreadsOfTheChildMayRunFirst) {
  QUERN_SKIP_UNDER_TSAN();
  const auto pool = make_pool(2);
  ASSERT_TRUE(pool_works(*pool));
  EXPECT_TRUE(test::in_child([&] {
    std::atomic<int> good{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { good += pool_works(*pool); });
    for (std::thread& t : threads) t.join();
    return good == 4;
  }));
}

}  // namespace
}  // namespace quern
