#pragma once

#include <cstdint>
#include <string>

#include "ops/text_writer.h"
#include "quern/problem.h"

namespace quern::inline v0 {

/// A plan has no m and no batch: where they are 0 its name says nothing of them. A call's name
/// writes every size that its op has, zeros too.
enum class ProblemOf : uint8_t { kCall, kPlan };

/// to_string(problem), or plan_name(problem), without the allocation, for verbose lines.
void write_problem(const Problem& problem, ProblemOf of, TextWriter* out) noexcept;
/// The first line of explain().
std::string plan_name(const Problem& problem);

}  // namespace quern::inline v0
