#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quern::test {

/// One row of the tables that the GEMM tests run: a problem string as quern-bench takes it, without
/// the op and its types (the tests cross every row with those), and why it is there.
struct ProblemCase {
  const char* name;
  const char* problem;  ///< "m:17/n:16/k:33"
  const char* why;
};

/// Edges of blocks, primes, the shapes of the models in the tree, and named faults of bug_log.md.
const std::vector<ProblemCase>& problem_cases();

/// Depths at which something changes: pairs (bf16), quads (int8), vectors, the unroll, cache lines.
inline constexpr int64_t kTailDepths[] = {0,  1,  2,  3,  4,  5,  7,   8,   15,  16,
                                          31, 32, 33, 63, 64, 65, 127, 128, 129, 130};

}  // namespace quern::test
