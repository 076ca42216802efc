#pragma once

#include <cstdint>

namespace quern::test {

/// Calls of operator new by the calling thread so far (the test program replaces it). For "run does
/// not allocate": the number before and after must be equal.
int64_t allocations() noexcept;

/// The calling thread's next `n` calls of operator new succeed and all after them fail; -1: none
/// fails any more.
void fail_allocations_after(int64_t n) noexcept;

}  // namespace quern::test
