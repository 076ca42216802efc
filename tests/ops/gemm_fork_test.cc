// reliability.md, T5: the parent computes with its pool, its children compute with the same plan,
// down to four levels; each child ends without exec, and the parent goes on.
#include <sys/resource.h>

#include <cstdio>

#include "quern/thread_pool.h"
#include "tests/ops/fork_child.h"
#include "tests/ops/gemm_fixture.h"

namespace quern::test {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
constexpr int kRounds = kSanitized ? 40 : 200;
constexpr int kDeepest = 4;
constexpr double kLimitSeconds = 20;

/// Processor time of this process and its ended children: what a busy machine adds little to.
double cpu_seconds() {
  double total = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage use{};
    getrusage(who, &use);
    for (const timeval& t : {use.ru_utime, use.ru_stime}) {
      total += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    }
  }
  return total;
}

class GemmForkTest : public IsaTest {};

TEST_P(GemmForkTest, TwoHundredRoundsFourLevelsDeep) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not support threads started in a forked child";
#endif
  auto pool = PersistentPool::create(3);
  ASSERT_TRUE(pool.ok());
  const Context ctx = context_at(GetParam(), pool->get());
  GemmCase c = make_case(kGemmKinds[1], "m:9/n:700/k:300");
  c.problem.epilogue.bias = true;
  GemmData data(c);
  Result<GemmOp> op = GemmOp::create(ctx, c);
  ASSERT_TRUE(op.ok()) << op.status().message();
  ASSERT_TRUE(op->pack(data).ok());
  const std::vector<uint32_t> expected = output_bits(*op, c, data);
  const GemmOp::Args args = args_of(c, data);
  const auto computes = [&] {
    data.c.set_all(0);
    return op->run(args).ok() && element_bits(data.c.view()) == expected;
  };
  const auto descend = [&](const auto& self, int level) -> bool {
    if (!computes()) return false;
    if (level == 0) return true;
    return in_child([&] { return self(self, level - 1); }) && computes();
  };
  double seconds = 0;
  // Once more where others on the machine make our waiting threads spin for longer.
  for (int attempt = 0; attempt < (kSanitized ? 1 : 2); ++attempt) {
    const double start = cpu_seconds();
    for (int round = 0; round < kRounds; ++round) {
      // Every level is met 50 times; a child that forks computes before and after its own child.
      const int levels = round % kDeepest;
      ASSERT_TRUE(in_child([&] { return descend(descend, levels); })) << "round " << round;
      ASSERT_TRUE(computes()) << "round " << round;
    }
    seconds = cpu_seconds() - start;
    std::printf("%d rounds of up to %d levels in %.1f s\n", kRounds, kDeepest, seconds);
    if (seconds < kLimitSeconds) break;
  }
  if (!kSanitized) {
    EXPECT_LT(seconds, kLimitSeconds);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, GemmForkTest, ::testing::ValuesIn(isas_to_test()), isa_name);

}  // namespace
}  // namespace quern::test
