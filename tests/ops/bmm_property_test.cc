// Random cases against the reference: 5,000 and more a commit (reliability.md, K9), and the bits
// of one thread from any pool.
#include <array>
#include <memory>
#include <mutex>

#include "quern/thread_pool.h"
#include "tests/ops/bmm_case.h"
#include "tests/support/property.h"

namespace quern::test {
namespace {

struct Shard {
  TestIsa isa;
  int shard;
};
void PrintTo(const Shard& s, std::ostream* out) {
  *out << s.shard;
}

std::vector<Shard> shards() {
  std::vector<Shard> out;
  for (const TestIsa& isa : isas_to_test()) {
    const int count = isa.skip_reason.empty() ? kPropertyShards : 1;
    for (int shard = 0; shard < count; ++shard) out.push_back({isa, shard});
  }
  return out;
}

/// An emulated call takes some hundred traps of 10 us.
double share_of(const TestIsa& isa) {
  return isa.name == "amx_emulated" ? 0.1 : 1.0;
}

constexpr double kThreadsShare = 0.1;
constexpr int kMostThreads = 16;

const Context& threaded_context(const TestIsa& isa, int threads) {
  struct Entry {
    std::once_flag once;
    std::unique_ptr<PersistentPool> pool;
    Context ctx;
  };
  static std::array<std::array<Entry, kMostThreads + 1>, 2> levels;
  Entry& entry = levels[isa.level == IsaLevel::kAmx ? 1 : 0][static_cast<size_t>(threads)];
  std::call_once(entry.once, [&] {
    auto pool = PersistentPool::create(threads);
    ASSERT_TRUE(pool.ok()) << pool.status().message();
    entry.pool = std::move(*pool);
    entry.ctx = context_at(isa, entry.pool.get());
  });
  return entry.ctx;
}

/// Large enough that the op does not think it too small for threads.
BmmCase threads_case(uint64_t seed) {
  BmmCase c = random_bmm(seed);
  Rng rng(seed);
  Problem& p = c.problem;
  p.batch = rng.one_in(2) ? rng.in(1, 3) : rng.in(4, 20);
  p.m = rng.one_in(3) ? rng.in(1, 4) : rng.in(1, 40);
  p.n = rng.in(1, 200);
  p.k = (100 << 10) / (p.batch * p.n * (c.codes() ? 1 : 2)) + rng.in(1, 40);
  return c;
}

::testing::AssertionResult same_bits(const TestIsa& isa, uint64_t seed) {
  const BmmCase c = threads_case(seed);
  Rng rng(seed + 1);
  const auto threads = static_cast<int>(rng.in(2, kMostThreads));
  if (bits_in(threaded_context(isa, threads), c) == bits_in(shared_context(isa), c)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << threads << " threads: other bits than one thread, " << to_string(c);
}

class BmmPropertyTest : public ::testing::TestWithParam<Shard> {};

TEST_P(BmmPropertyTest, MatchesReference) {
  const Shard& s = GetParam();
  if (!s.isa.skip_reason.empty()) GTEST_SKIP() << s.isa.skip_reason;
  run_property(
      "bmm", s.shard,
      [&s](uint64_t seed) { return check_bmm(shared_context(s.isa), random_bmm(seed)); },
      share_of(s.isa));
}

TEST_P(BmmPropertyTest, AnyPoolGivesTheBitsOfOneThread) {
  const Shard& s = GetParam();
  if (!s.isa.skip_reason.empty()) GTEST_SKIP() << s.isa.skip_reason;
  run_property(
      "bmm threads", s.shard, [&s](uint64_t seed) { return same_bits(s.isa, seed); },
      kThreadsShare * share_of(s.isa));
}

std::string shard_name(const ::testing::TestParamInfo<Shard>& info) {
  return info.param.isa.name + "_" + std::to_string(info.param.shard);
}
INSTANTIATE_TEST_SUITE_P(Ops, BmmPropertyTest, ::testing::ValuesIn(shards()), shard_name);

}  // namespace
}  // namespace quern::test
