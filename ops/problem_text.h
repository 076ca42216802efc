#pragma once

#include "ops/text_writer.h"
#include "quern/problem.h"

namespace quern::inline v0 {

/// to_string(problem) without the allocation, for verbose lines.
void write_problem(const Problem& problem, TextWriter* out) noexcept;

}  // namespace quern::inline v0
