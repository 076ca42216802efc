#include "ops/thread_team.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

namespace quern {
namespace {

// pthread_create whose call number `fail_at` (from 1) and, when `for_ever`, all later ones fail.
std::atomic<int> g_calls{0};
std::atomic<int> g_fail_at{0};
std::atomic<bool> g_for_ever{false};
std::atomic<int> g_live{0};

struct Start {
  void* (*fn)(void*);
  void* arg;
};

void* counted(void* p) {
  const Start start = *static_cast<Start*>(p);
  delete static_cast<Start*>(p);
  void* const result = start.fn(start.arg);
  g_live.fetch_sub(1);
  return result;
}

int failing_start(pthread_t* thread, const pthread_attr_t* attr, void* (*fn)(void*), void* arg) {
  const int call = g_calls.fetch_add(1) + 1;
  if (call == g_fail_at || (g_for_ever && call > g_fail_at)) return EAGAIN;
  g_live.fetch_add(1);
  return pthread_create(thread, attr, &counted, new Start{fn, arg});
}

void script(int fail_at, bool for_ever) {
  g_calls = 0;
  g_fail_at = fail_at;
  g_for_ever = for_ever;
}

int64_t run_and_count(ThreadTeam& team, int phases) {
  std::atomic<int64_t> calls{0};
  team.run(
      phases,
      [](void* ctx, int, int, int) { static_cast<std::atomic<int64_t>*>(ctx)->fetch_add(1); },
      &calls);
  return calls.load();
}

TEST(ThreadTeam, EveryFailedThreadCreationGivesAStatusAndLeavesNothing) {
  constexpr int kThreads = 9;
  for (const bool for_ever : {false, true}) {
    for (int fail_at = 1; fail_at < kThreads; ++fail_at) {
      SCOPED_TRACE("fail_at " + std::to_string(fail_at) + (for_ever ? " for ever" : " once"));
      ThreadTeam team(TeamOptions{.threads = kThreads, .start = &failing_start});
      script(fail_at, for_ever);
      const Status status = team.start();
      EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
      EXPECT_EQ(status.message(), "out of memory: cannot start worker thread " +
                                      std::to_string(fail_at) + ": errno " +
                                      std::to_string(EAGAIN));
      EXPECT_EQ(g_live.load(), 0) << "workers left behind";
      // The same team works as soon as the system lets it.
      script(0, false);
      ASSERT_TRUE(team.start().ok());
      EXPECT_EQ(g_live.load(), kThreads - 1);
      EXPECT_EQ(run_and_count(team, 3), 3 * kThreads);
    }
    EXPECT_EQ(g_live.load(), 0) << "the destructor joins";
  }
}

TEST(ThreadTeam, RunWithoutWorkersFallsBackToTheCaller) {
  ThreadTeam team(TeamOptions{.threads = 4, .start = &failing_start});
  script(2, true);
  EXPECT_EQ(run_and_count(team, 2), 8);
  EXPECT_EQ(g_live.load(), 0);
  script(0, false);
  EXPECT_EQ(run_and_count(team, 2), 8);
  EXPECT_EQ(g_live.load(), 3);
}

TEST(ThreadTeam, WorkersLeaveSignalsToTheHostButKeepFaultsOpen) {
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  ThreadTeam team(TeamOptions{.threads = 2});
  ASSERT_TRUE(team.start().ok());
  sigset_t seen[2];
  team.run(
      1,
      [](void* ctx, int, int tid, int) {
        pthread_sigmask(SIG_SETMASK, nullptr, static_cast<sigset_t*>(ctx) + tid);
      },
      seen);
  for (const int signal : {SIGALRM, SIGUSR1, SIGINT, SIGTERM}) {
    EXPECT_EQ(sigismember(&seen[0], signal), sigismember(&before, signal)) << signal;
    EXPECT_EQ(sigismember(&seen[1], signal), 1) << signal;
  }
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) {
    EXPECT_EQ(sigismember(&seen[1], signal), 0) << signal;
  }
}

TEST(WaitWord, WakesSleepersAndSpinners) {
  for (const int64_t spin_ns : {int64_t{0}, int64_t{1'000'000'000}}) {
    WaitWord word;
    int message = 0;
    std::thread waiter([&] {
      word.wait_while(0, spin_ns);
      EXPECT_EQ(message, 42);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    message = 42;
    word.set(1);
    waiter.join();
  }
}

TEST(WaitWord, PingPongLosesNoWakeUp) {
  WaitWord ping;
  WaitWord pong;
  constexpr uint32_t kRounds = 20'000;
  std::thread other([&] {
    for (uint32_t i = 0; i < kRounds; ++i) {
      ping.wait_while(i, 0);
      pong.set(i + 1);
    }
  });
  for (uint32_t i = 0; i < kRounds; ++i) {
    ping.set(i + 1);
    pong.wait_while(i, i % 3 == 0 ? 2'000 : 0);
  }
  other.join();
  EXPECT_EQ(pong.load(), kRounds);
}

}  // namespace
}  // namespace quern
