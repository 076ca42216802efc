#include "tests/support/fills.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include "reference/numeric.h"
#include "tests/support/problem_cases.h"
#include "tests/support/property.h"

namespace quern::test {
namespace {

TEST(Rng, FirstNumbersAreThoseOfTheAlgorithm) {
  // splitmix64 with state 0, from the published reference implementation.
  uint64_t state = 0;
  EXPECT_EQ(splitmix64(state), 0xe220a8397b1dcdafu);
  EXPECT_EQ(splitmix64(state), 0x6e789e6aa1b965f4u);
}

TEST(Rng, RangesAreInclusive) {
  Rng rng(1);
  std::set<int64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(rng.in(-3, 3));
  EXPECT_EQ(seen, (std::set<int64_t>{-3, -2, -1, 0, 1, 2, 3}));
  for (int i = 0; i < 1000; ++i) {
    const float u = rng.unit();
    EXPECT_GE(u, -1.0f);
    EXPECT_LE(u, 1.0f);
  }
}

TEST(Fills, S8CoversTheFullRange) {
  TestMatrix m(DType::kS8, 100, 100);
  Rng rng(2);
  fill_random(m, rng);
  std::set<double> seen;
  for (int i = 0; i < 100; ++i) {
    for (int j = 0; j < 100; ++j) seen.insert(m.get(i, j));
  }
  EXPECT_EQ(seen.size(), 256u);  // -128 among them: bug_log I05
}

TEST(Fills, ExtremeTablesHoldWhatTheyPromise) {
  const auto bf16 = [](uint16_t bits) { return reference::bf16_to_double(bits); };
  const auto is_subnormal = [&](uint16_t b) {
    return bf16(b) != 0 && std::fabs(bf16(b)) < 0x1p-126;
  };
  EXPECT_TRUE(std::any_of(std::begin(kExtremeBF16), std::end(kExtremeBF16), is_subnormal));
  EXPECT_TRUE(std::none_of(std::begin(kExtremeBF16), std::end(kExtremeBF16),
                           [&](uint16_t b) { return !std::isfinite(bf16(b)); }));
  float tie;
  std::memcpy(&tie, &kExtremeF32[7], 4);
  EXPECT_EQ(tie, 1.0f + 0x1p-8f);
}

TEST(TestMatrix, GapsAreNanAndWatched) {
  TestMatrix m(DType::kBF16, 3, 4, 2);
  const MatrixView v = m.view();
  EXPECT_EQ(v.row_stride, 6);
  EXPECT_TRUE(std::isnan(reference::load(v.data, v.dtype, 4)));
  m.set_all(1.0);
  EXPECT_TRUE(m.surroundings_intact());
  m.buffer().data()[2 * 4] = 0;  // first byte of the first gap
  EXPECT_FALSE(m.surroundings_intact());
}

TEST(ProblemCases, NamesAreUniqueAndEveryRowSaysWhy) {
  std::set<std::string> names;
  for (const ProblemCase& c : problem_cases()) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    EXPECT_GT(std::strlen(c.why), 0u) << c.name;
    EXPECT_EQ(std::strncmp(c.problem, "m:", 2), 0) << c.name;
  }
  EXPECT_GE(names.size(), 50u);
}

TEST(Property, ShardsTogetherRunEveryCaseWithItsOwnSeed) {
  if (std::getenv("QUERN_TEST_SEED")) GTEST_SKIP() << "one case was asked for";
  int64_t calls = 0;
  std::set<uint64_t> seeds;
  for (int shard = 0; shard < kPropertyShards; ++shard) {
    run_property("count", shard, [&](uint64_t seed) {
      ++calls;
      seeds.insert(seed);
      return ::testing::AssertionSuccess();
    });
  }
  EXPECT_GE(calls, property_cases());
  EXPECT_EQ(static_cast<int64_t>(seeds.size()), calls);
}

}  // namespace
}  // namespace quern::test
