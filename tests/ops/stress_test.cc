// T3: many threads that create, run, pack, save, map and destroy, all through one kernel cache.
// Under the preset `tsan` this is the test that has to find a data race; without it, the results
// have to be right. QUERN_STRESS_SECONDS says how long (2 by default).
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "tests/ops/gemm_fixture.h"
#include "tests/support/rng.h"
#include "tests/support/temp_dir.h"

namespace quern::test {
namespace {

using Clock = std::chrono::steady_clock;

Clock::duration stress_time() {
  const char* const text = std::getenv("QUERN_STRESS_SECONDS");
  const int seconds = text == nullptr ? 2 : std::atoi(text);
  EXPECT_GT(seconds, 0) << "QUERN_STRESS_SECONDS is " << text;
  return std::chrono::seconds(seconds);
}

/// A problem with its right answer, computed once before the threads start.
struct Known {
  GemmCase c;
  std::vector<uint32_t> bits;
  PackedWeights packed;
  std::string file;
};

std::vector<Known> known_problems(const Context& ctx, const TempDir& dir) {
  std::vector<Known> known;
  uint64_t variant = 500;
  for (const GemmKind& kind : kGemmKinds) {
    for (const char* shape : {"m:1/n:33/k:65", "m:9/n:48/k:128"}) {
      Known k;
      k.c = make_case(kind, shape);
      vary(k.c, ++variant);
      k.c.residual_is_c = false;
      Result<GemmOp> op = GemmOp::create(ctx, k.c);
      if (!op.ok()) continue;  // a CPU without AVX512-BF16
      GemmData data(k.c);
      EXPECT_TRUE(op->pack(data).ok());
      k.bits = output_bits(*op, k.c, data);
      k.packed = op->packed();
      k.file = dir.file(std::to_string(known.size()));
      EXPECT_TRUE(k.packed.save(k.file).ok());
      known.push_back(std::move(k));
    }
  }
  return known;
}

/// What the threads share.
struct Arena {
  Context shared;             ///< one cache for everybody
  Context pooled;             ///< the same with a pool that runs take turns on
  std::vector<GemmOp> plans;  ///< plans that everybody runs at once
  std::vector<Known> known;
  Clock::time_point end;
  std::atomic<int64_t> rounds{0};
};

/// One round of one thread: a problem, a way to get a plan, a way to get the weights, a run.
void one_round(Arena* arena, Rng& rng) {
  const auto which = static_cast<size_t>(rng.in(0, static_cast<int64_t>(arena->known.size()) - 1));
  const Known& known = arena->known[which];
  Context own;  // a cache, and code memory, that live for this round
  const Context* contexts[] = {&arena->shared, &arena->pooled, &own};
  const bool borrow = rng.one_in(3);
  Result<GemmOp> op = borrow ? Result<GemmOp>(arena->plans[which])
                             : GemmOp::create(*contexts[rng.in(0, 2)], known.c);
  EXPECT_TRUE(op.ok()) << op.status().message();
  if (!op.ok()) return;
  GemmData data(known.c);
  switch (rng.in(0, 3)) {
    case 0:
      EXPECT_TRUE(op->pack(data).ok());
      break;
    case 1:
      op->use(known.packed);
      break;
    default: {
      const auto mapped = PackedWeights::map(known.file);
      EXPECT_TRUE(mapped.ok()) << mapped.status().message();
      if (mapped.ok()) op->use(*mapped);
      if (rng.one_in(4)) {
        const Status saved = known.packed.save(known.file);
        EXPECT_TRUE(saved.ok()) << saved.message();
      }
    }
  }
  EXPECT_EQ(output_bits(*op, known.c, data), known.bits) << to_string(known.c);
  EXPECT_FALSE(op->explain().empty());
  EXPECT_LE(arena->shared.stats().kernels_generated, 100000u);
}

TEST(StressTest, SixtyFourThreadsOnOneCache) {
  if (Context().isa() < IsaLevel::kAvx512) GTEST_SKIP() << "not run: plans need AVX-512";
  constexpr int kThreads = 64;
  const TempDir dir;
  auto pool = PersistentPool::create(3);
  ASSERT_TRUE(pool.ok()) << pool.status().message();
  Arena arena{Context(), Context(pool->get()), {}, {}, {}, {}};
  arena.known = known_problems(Context(), dir);  // not from the shared cache: the threads fill that
  ASSERT_FALSE(arena.known.empty());
  for (const Known& known : arena.known) {
    Result<GemmOp> op = GemmOp::create(Context(), known.c);
    ASSERT_TRUE(op.ok()) << op.status().message();
    arena.plans.push_back(*op);
  }
  arena.end = Clock::now() + stress_time();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&arena, t] {
      Rng rng(static_cast<uint64_t>(t));
      do {
        one_round(&arena, rng);
        ++arena.rounds;
      } while (Clock::now() < arena.end);
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_GE(arena.rounds.load(), kThreads);
  std::printf("%lld rounds of %d threads, %llu kernels in the shared cache, %llu hits\n",
              static_cast<long long>(arena.rounds.load()), kThreads,
              static_cast<unsigned long long>(arena.shared.stats().kernels_generated),
              static_cast<unsigned long long>(arena.shared.stats().kernel_cache_hits));
}

}  // namespace
}  // namespace quern::test
