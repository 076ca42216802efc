#include "jit/kernel_cache.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/jit/code_samples.h"
#include "tests/jit/fake_memory.h"
#include "tests/jit/proc_maps.h"

namespace quern::jit {
namespace {

GeneratedCode constant_kernel(const std::string& name, uint32_t value) {
  GeneratedCode code;
  code.name = name;
  code.bytes = return_constant(value);
  return code;
}

/// A generator that counts its calls and takes as long as a real one.
struct CountingMake {
  std::string name;
  uint32_t value = 0;
  std::atomic<int>* calls = nullptr;
  Result<GeneratedCode> operator()() const {
    ++*calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return constant_kernel(name, value);
  }
};

/// Runs `body(thread)` in `n` threads that start together.
template <typename Body>
void together(int n, Body body) {
  std::atomic<int> waiting{n};
  std::vector<std::thread> threads;
  for (int t = 0; t < n; ++t) {
    threads.emplace_back([&, t] {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      body(t);
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(KernelCacheTest, GeneratesOnceAndKeeps) {
  KernelCache cache{CodeMemory()};
  std::atomic<int> calls{0};
  const CountingMake make{"k", 17, &calls};
  const Result<KernelHandle> first = cache.get("k", make);
  ASSERT_TRUE(first.ok()) << first.status().text();
  EXPECT_EQ((*first)->name, "k");
  EXPECT_EQ((*first)->code_bytes, 6u);
  EXPECT_EQ(call_code((*first)->entry), 17u);
  const Result<KernelHandle> second = cache.get("k", make);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(first->get(), second->get());
  EXPECT_EQ(calls, 1);
  const KernelCacheStats stats = cache.stats();
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.kernels, 1u);
  EXPECT_EQ(stats.failures, 0u);
  EXPECT_EQ(stats.code_bytes, 6u);
  EXPECT_GE(stats.generate_ns, 2000000u);
}

TEST(KernelCacheTest, SixtyFourThreadsAskForOneName) {
  for (int round = 0; round < 20; ++round) {
    KernelCache cache{CodeMemory()};
    std::atomic<int> calls{0};
    std::atomic<int> wrong{0};
    std::vector<KernelHandle> got(64);
    together(64, [&](int t) {
      const Result<KernelHandle> kernel = cache.get("one", CountingMake{"one", 5, &calls});
      if (!kernel.ok() || call_code((*kernel)->entry) != 5) {
        ++wrong;
      } else {
        got[static_cast<size_t>(t)] = *kernel;
      }
    });
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(wrong, 0);
    for (const KernelHandle& kernel : got) EXPECT_EQ(kernel, got[0]);
    EXPECT_EQ(cache.stats().kernels, 1u);
    EXPECT_EQ(cache.stats().hits, 63u);
  }
}

TEST(KernelCacheTest, SixtyFourThreadsAskForManyNames) {
  constexpr int kNames = 40;
  const FakeMemory api;
  {
    KernelCache cache{CodeMemory(api)};
    std::vector<std::atomic<int>> calls(kNames);
    std::atomic<int> wrong{0};
    together(64, [&](int t) {
      for (int i = 0; i < kNames; ++i) {
        const int k = (i * 7 + t) % kNames;
        const std::string name = "kernel" + std::to_string(k);
        const CountingMake make{name, static_cast<uint32_t>(k), &calls[static_cast<size_t>(k)]};
        const Result<KernelHandle> kernel = cache.get(name, make);
        if (!kernel.ok() || call_code((*kernel)->entry) != static_cast<uint32_t>(k)) ++wrong;
      }
    });
    EXPECT_EQ(wrong, 0);
    for (const std::atomic<int>& n : calls) EXPECT_EQ(n, 1);
    EXPECT_EQ(cache.stats().kernels, static_cast<uint64_t>(kNames));
    EXPECT_EQ(cache.stats().hits, static_cast<uint64_t>(63 * kNames));
    EXPECT_EQ(api.live_mappings, kNames);
  }
  EXPECT_EQ(api.live_mappings, 0);
}

TEST(KernelCacheTest, SlowGenerationDoesNotHoldUpOthers) {
  KernelCache cache{CodeMemory()};
  std::atomic<bool> slow_started{false};
  std::atomic<bool> release{false};
  std::thread slow([&] {
    const auto kernel = cache.get("slow", [&]() -> Result<GeneratedCode> {
      slow_started = true;
      while (!release) std::this_thread::yield();
      return constant_kernel("slow", 1);
    });
    EXPECT_TRUE(kernel.ok());
  });
  while (!slow_started) std::this_thread::yield();
  std::atomic<int> calls{0};
  for (int i = 0; i < 64; ++i) {  // every shard, the slow one's too
    const std::string name = "fast" + std::to_string(i);
    EXPECT_TRUE(cache.get(name, CountingMake{name, 2, &calls}).ok());
  }
  release = true;
  slow.join();
  EXPECT_EQ(calls, 64);
}

TEST(KernelCacheTest, FailureIsStored) {
  KernelCache cache{CodeMemory()};
  std::atomic<int> calls{0};
  const auto make = [&]() -> Result<GeneratedCode> {
    ++calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return Status(StatusCode::kUnsupported, "no such kernel for {0} rows", 33);
  };
  std::atomic<int> wrong{0};
  together(64, [&](int) {
    const Status status = cache.get("bad", make).status();
    if (status.code() != StatusCode::kUnsupported || status.value(0) != 33) ++wrong;
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(cache.get("bad", make).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(cache.stats().failures, 1u);
  EXPECT_EQ(cache.stats().kernels, 0u);
  EXPECT_EQ(cache.stats().hits, 64u);
}

// The broken promise of other code caches: whoever waits or comes later must get an answer.
TEST(KernelCacheTest, ThrowingGeneratorIsAFailureLikeAnyOther) {
  KernelCache cache{CodeMemory()};
  std::atomic<int> calls{0};
  const auto throws = [&]() -> Result<GeneratedCode> {
    ++calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    throw std::runtime_error("from inside an assembler");
  };
  std::atomic<int> wrong{0};
  together(64, [&](int) {
    if (cache.get("t", throws).status().code() != StatusCode::kInternal) ++wrong;
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(calls, 1);
  const auto throws_int = []() -> Result<GeneratedCode> { throw 5; };
  EXPECT_EQ(cache.get("int", throws_int).status().code(), StatusCode::kInternal);
  EXPECT_EQ(cache.get("empty", KernelCache::Make()).status().code(), StatusCode::kInternal);
}

TEST(KernelCacheTest, WantOfMemoryIsNotStored) {
  KernelCache cache{CodeMemory()};
  int calls = 0;
  const auto make = [&]() -> Result<GeneratedCode> {
    if (++calls == 1) throw std::bad_alloc();
    if (calls == 2) return Status(StatusCode::kOutOfMemory, "none");
    return constant_kernel("k", 3);
  };
  EXPECT_EQ(cache.get("k", make).status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(cache.get("k", make).status().code(), StatusCode::kOutOfMemory);
  const Result<KernelHandle> kernel = cache.get("k", make);
  ASSERT_TRUE(kernel.ok());
  EXPECT_EQ(call_code((*kernel)->entry), 3u);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(cache.stats().failures, 2u);
}

TEST(KernelCacheTest, DeniedExecutableMemoryReachesTheCaller) {
  FakeMemory api;
  api.protect_error = EACCES;
  api.memfd_error = EPERM;
  KernelCache cache{CodeMemory(api)};
  const auto make = [] { return Result<GeneratedCode>(constant_kernel("k", 3)); };
  const Status status = cache.get("k", make).status();
  EXPECT_EQ(status.code(), StatusCode::kJitUnavailable);
  EXPECT_EQ(status.value(0), EACCES);
  EXPECT_EQ(cache.get("k", make).status().code(), StatusCode::kJitUnavailable);
  EXPECT_EQ(api.live_mappings, 0);
}

TEST(KernelCacheTest, GeneratorFaultsAreRefused) {
  KernelCache cache{CodeMemory()};
  const auto other_name = [] { return Result<GeneratedCode>(constant_kernel("b", 1)); };
  EXPECT_EQ(cache.get("a", other_name).status().code(), StatusCode::kInternal);
  const auto no_code = [] {
    GeneratedCode code;
    code.name = "empty";
    return Result<GeneratedCode>(code);
  };
  EXPECT_FALSE(cache.get("empty", no_code).ok());
}

TEST(KernelCacheTest, GeneratorMayAskForAnotherKernelButNotItsOwn) {
  KernelCache cache{CodeMemory()};
  std::atomic<int> calls{0};
  const auto outer = cache.get("outer", [&]() -> Result<GeneratedCode> {
    const Result<KernelHandle> inner = cache.get("inner", CountingMake{"inner", 9, &calls});
    if (!inner.ok()) return inner.status();
    return constant_kernel("outer", call_code((*inner)->entry) + 1);
  });
  ASSERT_TRUE(outer.ok());
  EXPECT_EQ(call_code((*outer)->entry), 10u);
  KernelCache::Make self = [&]() -> Result<GeneratedCode> {
    const Result<KernelHandle> again = cache.get("self", self);
    if (!again.ok()) return again.status();
    return constant_kernel("self", 1);
  };
  EXPECT_EQ(cache.get("self", self).status().code(), StatusCode::kInternal);
}

TEST(KernelCacheTest, KernelsOutliveTheCacheWhileHeld) {
  const FakeMemory api;
  KernelHandle held;
  {
    KernelCache cache{CodeMemory(api)};
    held = *cache.get("held", [] { return Result<GeneratedCode>(constant_kernel("held", 8)); });
    (void)cache.get("dropped", [] { return Result<GeneratedCode>(constant_kernel("dropped", 8)); });
    EXPECT_EQ(api.live_mappings, 2);
  }
  EXPECT_EQ(api.live_mappings, 1);
  EXPECT_EQ(call_code(held->entry), 8u);
  EXPECT_EQ(rights_at(held->entry), "r-xp");
  held.reset();
  EXPECT_EQ(api.live_mappings, 0);
}

class RecordingListener final : public CodeListener {
 public:
  KernelRecord published(const GeneratedCode& code, const Kernel& kernel) override {
    EXPECT_EQ(code.name, kernel.name);
    EXPECT_EQ(code.bytes.size(), kernel.code_bytes);
    EXPECT_NE(kernel.entry, nullptr);
    ++calls;
    return nullptr;
  }
  std::atomic<int> calls{0};
};

TEST(KernelCacheTest, ListenersHearOfEachKernelOnceAndOfNoFailure) {
  CodeRegistry registry;
  const auto listener = std::make_shared<RecordingListener>();
  registry.add(listener);
  KernelCache cache(CodeMemory(), &registry);
  std::atomic<int> calls{0};
  together(16, [&](int) { (void)cache.get("k", CountingMake{"k", 5, &calls}); });
  (void)cache.get("bad",
                  []() -> Result<GeneratedCode> { return Status(StatusCode::kUnsupported, "no"); });
  EXPECT_EQ(listener->calls, 1);
}

}  // namespace
}  // namespace quern::jit
