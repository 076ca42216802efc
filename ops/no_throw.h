#pragma once

#include <exception>
#include <new>

#include "quern/status.h"

namespace quern::inline v0 {

constexpr const char* kNoMemoryForPlan = "no memory for a plan";

/// What `make` returns, with whatever it throws as a Status: no exception leaves the library.
/// `no_memory` says in the caller's terms what there was no memory for.
template <typename Make>
auto no_throw(const char* no_memory, Make make) noexcept -> decltype(make()) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, no_memory);
  } catch (...) {
    return Status(StatusCode::kInternal, "an exception inside quern, or in a callback given to it");
  }
}

}  // namespace quern::inline v0
