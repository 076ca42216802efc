// Random cases against the reference: 20,000 per op unless QUERN_TEST_CASES says otherwise. A tenth
// as many for what costs more: real threads (reliability.md, K1 and T1) and emulated AMX.
#include <array>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "quern/thread_pool.h"
#include "tests/ops/gemm_fixture.h"
#include "tests/support/property.h"

namespace quern::test {
namespace {

struct Shard {
  TestIsa isa;
  std::string op;
  int shard;
};
void PrintTo(const Shard& s, std::ostream* out) {
  *out << s.op << s.shard;
}

std::vector<Shard> shards() {
  std::vector<Shard> out;
  for (const TestIsa& isa : isas_to_test()) {
    for (const char* op : {"bf16_gemm", "fp4_gemm", "fp8_gemm", "int4_gemm", "int8_gemm"}) {
      // A level that is skipped says so once, not once a shard.
      const int count = isa.skip_reason.empty() ? kPropertyShards : 1;
      for (int shard = 0; shard < count; ++shard) out.push_back({isa, op, shard});
    }
  }
  return out;
}

constexpr int kMostThreads = 64;
constexpr double kThreadsShare = 0.1;  // of the property cases: 2,000 an op

/// An emulated call takes some hundred traps of 10 us.
double share_of(const TestIsa& isa) {
  return isa.name == "amx_emulated" ? 0.1 : 1.0;
}

/// Contexts with real threads, started when first asked for: 17 sizes of pool, three of each.
const Context& threaded_context(const TestIsa& isa, int threads, int copy) {
  struct Entry {
    std::once_flag once;
    std::unique_ptr<PersistentPool> pool;
    Context ctx;
  };
  static std::array<std::array<Entry, 3 * (kMostThreads + 1)>, 2> levels;
  auto& entries = levels[isa.level == IsaLevel::kAmx ? 1 : 0];
  Entry& entry = entries[static_cast<size_t>(3 * threads + copy)];
  std::call_once(entry.once, [&] {
    auto pool = PersistentPool::create(threads);
    ASSERT_TRUE(pool.ok()) << pool.status().message();
    entry.pool = std::move(*pool);
    entry.ctx = context_at(isa, entry.pool.get());
  });
  return entry.ctx;
}

/// Large enough that the op does not think it too small for threads, small enough for 2,000.
GemmCase threads_case(const std::string& op, uint64_t seed) {
  GemmCase c = random_case(op, seed);
  Rng rng(seed);
  c.problem.m = rng.one_in(3) ? rng.in(1, 4) : rng.in(1, 70);
  c.problem.n = rng.in(1, 500);
  const int64_t weights = c.is_int4() || c.is_fp4()   ? 200 << 10
                          : c.is_int8() || c.is_fp8() ? 100 << 10
                                                      : 50 << 10;
  c.problem.k = weights / c.problem.n + rng.in(1, 70);
  return c;
}

::testing::AssertionResult same_bits(const TestIsa& isa, const GemmCase& c, uint64_t seed) {
  const std::vector<uint32_t> serial = bits_in(shared_context(isa), c);
  Rng rng(seed + 1);
  const int pools = static_cast<int>(rng.in(1, 3));
  std::array<int, 3> threads{};
  std::array<std::vector<uint32_t>, 3> bits;
  std::vector<std::thread> callers;
  for (int i = 0; i < pools; ++i) {
    const auto count = static_cast<int>(rng.in(1, 17));
    threads[static_cast<size_t>(i)] = count == 17 ? kMostThreads : count;
  }
  for (size_t i = 0; i < static_cast<size_t>(pools); ++i) {
    callers.emplace_back(
        [&, i] { bits[i] = bits_in(threaded_context(isa, threads[i], static_cast<int>(i)), c); });
  }
  for (std::thread& caller : callers) caller.join();
  for (size_t i = 0; i < static_cast<size_t>(pools); ++i) {
    if (bits[i] == serial) continue;
    return ::testing::AssertionFailure()
           << threads[i] << " threads, " << pools << " pools at once: other bits than one thread, "
           << to_string(c);
  }
  return ::testing::AssertionSuccess();
}

class GemmPropertyTest : public ::testing::TestWithParam<Shard> {};

TEST_P(GemmPropertyTest, MatchesReference) {
  const Shard& s = GetParam();
  if (!s.isa.skip_reason.empty()) GTEST_SKIP() << s.isa.skip_reason;
  run_property(
      s.op, s.shard,
      [&s](uint64_t seed) { return check_case(shared_context(s.isa), random_case(s.op, seed)); },
      share_of(s.isa));
}

// The same bits from 1 to 16 threads and 64, in one pool or in three at once.
TEST_P(GemmPropertyTest, AnyPoolsGiveTheBitsOfOneThread) {
  const Shard& s = GetParam();
  if (!s.isa.skip_reason.empty()) GTEST_SKIP() << s.isa.skip_reason;
  run_property(
      s.op + " threads", s.shard,
      [&s](uint64_t seed) { return same_bits(s.isa, threads_case(s.op, seed), seed); },
      kThreadsShare * share_of(s.isa));
}

std::string shard_name(const ::testing::TestParamInfo<Shard>& info) {
  return info.param.isa.name + "_" + info.param.op + "_" + std::to_string(info.param.shard);
}
INSTANTIATE_TEST_SUITE_P(Ops, GemmPropertyTest, ::testing::ValuesIn(shards()), shard_name);

}  // namespace
}  // namespace quern::test
