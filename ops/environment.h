#pragma once

#include <string>

#include "quern/context.h"
#include "quern/status.h"

namespace quern::inline v0 {

/// Puts QUERN_MAX_ISA, QUERN_JIT, QUERN_JIT_DUMP, QUERN_JIT_PROFILE and QUERN_VERBOSE on top of
/// *options. A variable that is not set changes nothing; one that is set to anything unknown, the
/// empty string included, is an error that names it. The only function in quern that reads the
/// environment.
Status apply_environment(ContextOptions* options);

bool is_writable_directory(const std::string& path) noexcept;

}  // namespace quern::inline v0
