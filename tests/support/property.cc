#include "tests/support/property.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "tests/support/rng.h"

namespace quern::test {
namespace {

std::optional<uint64_t> number_from_environment(const char* name) {
  const char* text = std::getenv(name);
  if (!text || !*text) return std::nullopt;
  char* end = nullptr;
  const uint64_t value = std::strtoull(text, &end, 0);
  if (*end) {
    ADD_FAILURE() << name << "=" << text << " is not a number";
    return std::nullopt;
  }
  return value;
}

std::string rerun_line(uint64_t seed) {
  const ::testing::TestInfo* info = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string filter =
      info ? std::string(info->test_suite_name()) + "." + info->name() : std::string("*");
  char text[64];
  std::snprintf(text, sizeof(text), "QUERN_TEST_SEED=0x%" PRIx64, seed);
  return std::string(text) + " <this test program> --gtest_filter=" + filter;
}

}  // namespace

int64_t property_cases() {
  return static_cast<int64_t>(number_from_environment("QUERN_TEST_CASES").value_or(20000));
}

void run_property(const std::string& name, int shard,
                  const std::function<::testing::AssertionResult(uint64_t seed)>& check,
                  double share) {
  if (const auto only = number_from_environment("QUERN_TEST_SEED")) {
    EXPECT_TRUE(check(*only)) << "again with: " << rerun_line(*only);
    return;
  }
  const uint64_t base = number_from_environment("QUERN_TEST_BASE_SEED").value_or(1);
  const double per_shard = static_cast<double>(property_cases()) * share / kPropertyShards;
  const int64_t cases = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(per_shard)));
  std::printf("%s shard %d: %lld cases, base seed %llu\n", name.c_str(), shard,
              static_cast<long long>(cases), static_cast<unsigned long long>(base));

  uint64_t state = base * 1000003u + static_cast<uint64_t>(shard);
  for (const char c : name) state = state * 131 + static_cast<unsigned char>(c);
  int failures = 0;
  for (int64_t i = 0; i < cases && failures < 3; ++i) {
    const uint64_t seed = splitmix64(state);
    const ::testing::AssertionResult result = check(seed);
    if (result) continue;
    ++failures;
    ADD_FAILURE() << result.message() << "\n  again with: " << rerun_line(seed);
  }
}

}  // namespace quern::test
