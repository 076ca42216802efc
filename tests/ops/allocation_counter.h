#pragma once

#include <cstdint>

namespace quern::test {

/// Calls of operator new by the calling thread so far (the test program replaces it). For "run does
/// not allocate": the number before and after must be equal.
int64_t allocations() noexcept;

}  // namespace quern::test
