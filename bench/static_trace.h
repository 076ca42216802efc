#pragma once

#include <cstdint>
#include <vector>

#include "bench/static_code.h"
#include "quern/span.h"

namespace quern::bench {

/// Follows one call of `code` without executing it, and says how often each instruction runs.
/// Scalar instructions are interpreted as far as branches depend on them: rdi points at `args` (the
/// bytes of the kernel's argument struct), everything else in memory is unknown. Throws
/// std::runtime_error where a branch depends on what is not known, leads to no instruction, or the
/// call does not end.
std::vector<uint64_t> trace_call(const std::vector<CodeInstruction>& code,
                                 Span<const std::byte> args);

}  // namespace quern::bench
