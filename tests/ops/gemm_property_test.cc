// Random cases against the reference: 20,000 per op unless QUERN_TEST_CASES says otherwise.
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
    for (const char* op : {"bf16_gemm", "int8_gemm"}) {
      // A level that is skipped says so once, not once a shard.
      const int count = isa.skip_reason.empty() ? kPropertyShards : 1;
      for (int shard = 0; shard < count; ++shard) out.push_back({isa, op, shard});
    }
  }
  return out;
}

class GemmPropertyTest : public ::testing::TestWithParam<Shard> {};

TEST_P(GemmPropertyTest, MatchesReference) {
  const Shard& s = GetParam();
  if (!s.isa.skip_reason.empty()) GTEST_SKIP() << s.isa.skip_reason;
  run_property(s.op, s.shard, [&s](uint64_t seed) {
    return check_case(shared_context(s.isa), random_case(s.op, seed));
  });
}

std::string shard_name(const ::testing::TestParamInfo<Shard>& info) {
  return info.param.isa.name + "_" + info.param.op + "_" + std::to_string(info.param.shard);
}
INSTANTIATE_TEST_SUITE_P(Ops, GemmPropertyTest, ::testing::ValuesIn(shards()), shard_name);

}  // namespace
}  // namespace quern::test
