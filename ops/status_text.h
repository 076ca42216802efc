#pragma once

#include "ops/text_writer.h"
#include "quern/status.h"

namespace quern::inline v0 {

/// Status::message() without the allocation, for verbose lines of run().
void write_message(const Status& status, TextWriter* out) noexcept;

}  // namespace quern::inline v0
