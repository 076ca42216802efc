#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

namespace quern::test {

/// A property is tested on many random cases, cut into shards so that ctest can run them side by
/// side. The environment of the test run decides how many:
///   QUERN_TEST_CASES      cases per op, all shards together (default 20000; nightly 1000000)
///   QUERN_TEST_BASE_SEED  where the seeds start (default 1)
///   QUERN_TEST_SEED       run exactly this one case: what a failure prints
inline constexpr int kPropertyShards = 8;

int64_t property_cases();

/// Calls check(seed) for each case of the shard. Prints the count and the base seed; a failure adds
/// the line that runs it again, and the shard stops after three of them. `share` is the part of the
/// op's cases this property gets (1: all of them).
void run_property(const std::string& name, int shard,
                  const std::function<::testing::AssertionResult(uint64_t seed)>& check,
                  double share = 1);

}  // namespace quern::test
