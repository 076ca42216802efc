#pragma once

#include <cstdint>
#include <string>

#include "quern/isa.h"

/// What a plan says of itself (explain(), ops/README.md), taken apart.
namespace quern::bench {

/// The name of the kernel that runs `m` rows, out of what explain() says: of the kernels listed the
/// one whose block the line for `m` names, else the last one.
std::string kernel_name(const std::string& explanation, int64_t m);

/// The level of a kernel, which its name says: "int8_gemm.avx512.mr6..." ran at kAvx512, whatever
/// the machine could do. kNone where the name says nothing.
IsaLevel level_of_kernel(const std::string& kernel);

/// Why the plan that explains itself so has no kernel of `level`: the reason of the refusal.
std::string why_not(const std::string& explanation, IsaLevel level);

}  // namespace quern::bench
