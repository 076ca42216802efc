// fork() at any moment: the child goes on using the context that other threads of the parent were
// in the middle of.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/context_impl.h"
#include "quern/quern.h"
#include "tests/ops/fork_child.h"

namespace quern {
namespace {

// A `ret`, generated slowly enough for a fork to fall into it.
Result<jit::KernelHandle> ret_kernel(const Context& ctx, const std::string& name) {
  return ctx.impl().kernel(name, [&name] {
    std::this_thread::sleep_for(std::chrono::microseconds(300));
    jit::GeneratedCode code;
    code.name = name;
    code.bytes = {0xc3};
    return Result<jit::GeneratedCode>(std::move(code));
  });
}

std::string name_of(int64_t i) {
  return "ret" + std::to_string(i);
}

/// Threads that create kernels in one context without end: most of them new names, some the one
/// that another thread is at, so that there are always generators and waiters.
class Creators {
 public:
  Creators(const Context& ctx, int threads) {
    for (int t = 0; t < threads; ++t) {
      threads_.emplace_back([this, &ctx] {
        while (!stop_) {
          const int64_t i = next_.fetch_add(1) / 2;
          if (!ret_kernel(ctx, name_of(i)).ok()) ++failures_;
        }
      });
    }
    while (next_ < 10) std::this_thread::yield();
  }
  ~Creators() { stop(); }
  void stop() {
    stop_ = true;
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }
  int64_t next() const { return next_ / 2; }
  int failures() const { return failures_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> next_{0};
  std::atomic<int> failures_{0};
  std::vector<std::thread> threads_;
};

/// Every name around the one that was being generated at the fork, and each op.
bool context_works(const Context& ctx, int64_t around) {
  for (int64_t i = std::max<int64_t>(around - 8, 0); i < around + 2; ++i) {
    const auto kernel = ret_kernel(ctx, name_of(i));
    if (!kernel.ok()) return false;
    (*kernel)->call(0);
  }
  if (ctx.isa() < IsaLevel::kAvx512) return true;
  Int8GemmDesc desc;
  desc.n = desc.k = 16;
  return Int8Gemm::create(ctx, desc).ok() && QuantizeRows::create(ctx, {16, DType::kF32, 0}).ok();
}

TEST(ContextFork, WhileOtherThreadsCreate) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not support threads started in a forked child";
#elif defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer's allocator may be locked in a child forked meanwhile";
#endif
  std::atomic<int64_t> lines{0};
  ContextOptions options;
  options.verbose = kVerboseAll;  // the sink's lock is one of those that a child may meet
  options.sink = [](void* user, const char*) { ++*static_cast<std::atomic<int64_t>*>(user); };
  options.sink_user = &lines;
  const auto ctx = Context::create(options);
  ASSERT_TRUE(ctx.ok());
  Creators creators(*ctx, 4);
  for (int i = 0; i < 150; ++i) {
    const int64_t around = creators.next();
    ASSERT_TRUE(test::in_child([&] { return context_works(*ctx, around); })) << "fork " << i;
  }
  creators.stop();
  EXPECT_EQ(creators.failures(), 0);
  EXPECT_TRUE(context_works(*ctx, creators.next())) << "the parent is none the wiser";
  EXPECT_GT(lines, 0);
}

TEST(ContextFork, ThreadsOfTheChildShareTheContext) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not support threads started in a forked child";
#elif defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer's allocator may be locked in a child forked meanwhile";
#endif
  const Context ctx;
  Creators creators(ctx, 2);
  for (int i = 0; i < 20; ++i) {
    const int64_t around = creators.next();
    ASSERT_TRUE(test::in_child([&] {
      std::atomic<int> works{0};
      std::vector<std::thread> threads;
      for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&] { works += context_works(ctx, around) ? 1 : 0; });
      }
      for (std::thread& t : threads) t.join();
      return works == 3;
    })) << "fork "
        << i;
  }
}

// The child's only thread is inside the generator, or the sink, that forked.
TEST(ContextFork, FromInsideAGeneratorAndASink) {
  const Context ctx;
  const auto kernel = ctx.impl().kernel("forks", [&ctx] {
    jit::GeneratedCode code;
    code.name = "forks";
    code.bytes = {0xc3};
    const bool child = test::in_child(
        [&ctx] { return ret_kernel(ctx, "other").ok() && ret_kernel(ctx, "forks").ok(); });
    if (!child)
      return Result<jit::GeneratedCode>(Status(StatusCode::kInternal, "the child failed"));
    return Result<jit::GeneratedCode>(std::move(code));
  });
  EXPECT_TRUE(kernel.ok()) << kernel.status().message();

  struct Forking {
    const Context* ctx = nullptr;
    bool child = false;
  } forking;
  ContextOptions options;
  options.verbose = kVerboseCreate;
  options.sink_user = &forking;
  options.sink = [](void* user, const char* line) {
    auto& f = *static_cast<Forking*>(user);
    if (f.ctx == nullptr || std::string(line).find("template") == std::string::npos) return;
    const Context& shared = *f.ctx;
    f.ctx = nullptr;
    f.child = test::in_child([&shared] { return ret_kernel(shared, "in the child").ok(); });
  };
  const auto with_sink = Context::create(options);
  ASSERT_TRUE(with_sink.ok());
  forking.ctx = &*with_sink;
  EXPECT_TRUE(ret_kernel(*with_sink, "first").ok());
  EXPECT_TRUE(forking.child);
}

}  // namespace
}  // namespace quern
