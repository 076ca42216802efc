#pragma once

#include <initializer_list>

#include "ops/text_writer.h"
#include "quern/dtype.h"
#include "quern/packed_weights.h"
#include "quern/status.h"

namespace quern::inline v0 {

/// The numbers of a Status that its text writes by name: {0:dtype}, {0:dtypes}, {0:layout}.
constexpr int64_t status_value(DType t) noexcept {
  return static_cast<int64_t>(t);
}
constexpr int64_t status_value(std::initializer_list<DType> set) noexcept {
  int64_t bits = 0;
  for (const DType t : set) bits |= int64_t{1} << static_cast<int>(t);
  return bits;
}
constexpr int64_t status_value(WeightLayout layout) noexcept {
  return static_cast<int64_t>(layout);
}

/// Status::message() without the allocation, for verbose lines of run().
void write_message(const Status& status, TextWriter* out) noexcept;

}  // namespace quern::inline v0
