#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "quern/c_api.h"
#include "quern/context.h"
#include "quern/packed_weights.h"
#include "quern/status.h"
#include "quern/tensor_view.h"
#include "quern/thread_pool.h"

/// What the C functions share: statuses and exceptions, structs of other versions, operands.

// The handles. A pool is listed before what uses it: members go in reverse order.
struct quern_pool {
  std::shared_ptr<quern::ThreadPool> pool;
};
struct quern_context {
  std::shared_ptr<quern::ThreadPool> pool;
  quern::Context context;
};
struct quern_packed_weights {
  quern::PackedWeights weights;
};

namespace quern::inline v0 {

inline Status c_invalid(const char* text, const char* name, int64_t v0 = 0,
                        int64_t v1 = 0) noexcept {
  return Status(StatusCode::kInvalidArgument, text, v0, v1, name);
}

/// Hands `status` to the caller in both ways.
inline int32_t c_report(const Status& status, quern_status* out) noexcept {
  static_assert(sizeof(Status) <= sizeof(quern_status::opaque));
  static_assert(alignof(Status) <= alignof(uint64_t));
  if (out != nullptr) {
    out->code = static_cast<int32_t>(status.code());
    out->reserved = 0;
    std::memcpy(out->opaque, &status, sizeof status);
  }
  return static_cast<int32_t>(status.code());
}

/// Runs fn() -> Status; no exception gets past.
template <typename Fn>
int32_t c_call(quern_status* out, Fn fn) noexcept {
  Status status;
  try {
    status = fn();
  } catch (const std::bad_alloc&) {
    status = Status(StatusCode::kOutOfMemory, "no memory");
  } catch (...) {
    status = Status(StatusCode::kInternal, "an exception reached the C API");
  }
  return c_report(status, out);
}

/// As c_call for a function that makes a handle: fn(std::unique_ptr<Handle>*) -> Status.
template <typename Handle, typename Fn>
int32_t c_create(Handle** out, quern_status* status, Fn fn) noexcept {
  if (out != nullptr) *out = nullptr;
  return c_call(status, [&]() -> Status {
    if (out == nullptr) return c_invalid("{s} is null", "out");
    std::unique_ptr<Handle> handle;
    const Status s = fn(&handle);
    if (s.ok()) *out = handle.release();
    return s;
  });
}

/// An owned C string, null where memory is short. fn() -> std::string.
template <typename Fn>
char* c_string(Fn fn) noexcept {
  try {
    const std::string text = fn();
    auto* copy = new (std::nothrow) char[text.size() + 1];
    if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
  } catch (...) {
    return nullptr;
  }
}

/// The size that a struct had when it first appeared: callers compiled then say so, and what was
/// added since keeps its zero. Give a struct that grows a specialisation with its old size.
template <typename T>
inline constexpr size_t kFirstStructSize = sizeof(T);
template <>
inline constexpr size_t kFirstStructSize<quern_packed_weights_info> =
    offsetof(quern_packed_weights_info, batch);

template <typename T>
Status c_check_size(const T* s, const char* name) noexcept {
  constexpr size_t kMost = 4096;  // more is not a newer header but memory nobody initialised
  if (s == nullptr) return c_invalid("{s} is null", name);
  if (s->struct_size < kFirstStructSize<T> || s->struct_size > kMost) {
    return c_invalid("{s}.struct_size ({0}) must be its sizeof ({1})", name,
                     static_cast<int64_t>(s->struct_size), sizeof(T));
  }
  return {};
}

/// Copies a caller's struct, older or newer than ours, into *to, which is zero.
template <typename T>
Status c_read(const T* from, const char* name, T* to) noexcept {
  if (const Status s = c_check_size(from, name); !s.ok()) return s;
  const size_t size = from->struct_size;
  std::memcpy(to, from, std::min(size, sizeof(T)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return Status(StatusCode::kUnsupported,
                    "{s} has a field at byte {0} that this version does not know",
                    static_cast<int64_t>(i), 0, name);
    }
  }
  return {};
}

/// Fills a caller's struct, older or newer than ours; its struct_size stays.
template <typename T>
Status c_write(T from, const char* name, T* to) noexcept {
  if (const Status s = c_check_size(to, name); !s.ok()) return s;
  const size_t size = to->struct_size;
  from.struct_size = size;
  std::memset(static_cast<void*>(to), 0, size);
  std::memcpy(to, &from, std::min(size, sizeof(T)));
  return {};
}

/// What later versions may give a meaning to.
inline Status c_reserved(int32_t value, const char* name) noexcept {
  return value == 0 ? Status() : c_invalid("{s}.reserved ({0}) must be 0", name, value);
}

inline Status c_flag(int32_t value, const char* name, bool* to) noexcept {
  if (value != 0 && value != 1) return c_invalid("{s} ({0}) must be 0 or 1", name, value);
  *to = value != 0;
  return {};
}

/// Enums of 8 bits: a value that does not fit must not come out as another one.
template <typename Enum>
Status c_enum(int32_t value, const char* name, Enum* to) noexcept {
  if (value < 0 || value > 255) return c_invalid("{s} ({0}) is unknown", name, value);
  *to = static_cast<Enum>(value);
  return {};
}

/// `text` says what is wrong with a value that is no DType.
inline Status c_dtype(int32_t value, const char* text, const char* name, DType* to) noexcept {
  // Of packed weights only: no operand has a type without whole bytes.
  const bool known = value >= 0 && value <= static_cast<int32_t>(DType::kE8M0) &&
                     size_of(static_cast<DType>(value)) != 0;
  if (!known) return c_invalid(text, name, value);
  *to = static_cast<DType>(value);
  return {};
}

template <typename View, typename From>
Status c_matrix(const From& from, const char* name, View* to) noexcept {
  *to = {from.data, DType::kF32, from.rows, from.cols,
         from.row_stride != 0 ? from.row_stride : from.cols};
  if (const Status s = c_reserved(from.reserved, name); !s.ok()) return s;
  return c_dtype(from.dtype, "{s}.dtype ({0}) is unknown", name, &to->dtype);
}

template <typename View, typename From>
Status c_vector(const From& from, const char* name, View* to) noexcept {
  *to = {from.data, DType::kF32, from.size};
  if (const Status s = c_reserved(from.reserved, name); !s.ok()) return s;
  return c_dtype(from.dtype, "{s}.dtype ({0}) is unknown", name, &to->dtype);
}

/// The first of several steps that failed.
template <typename... Statuses>
Status c_first(const Statuses&... statuses) noexcept {
  Status first;
  (void)((statuses.ok() || (first = statuses, false)) && ...);
  return first;
}

}  // namespace quern::inline v0
