#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "quern/export.h"

namespace quern {
inline namespace v0 {

enum class StatusCode : int32_t {
  kOk = 0,
  kInvalidArgument =
      1,  ///< the caller broke a rule of the contract; the text names argument, value and rule
  kUnsupported = 2,  ///< legal, but no kernel of this build or machine can do it
  kTooLarge = 3,     ///< beyond a documented limit
  kOutOfMemory = 4,
  kJitUnavailable = 5,  ///< no executable memory, or JIT switched off
  kInternal = 6,
  kIoError = 7,  ///< the system refused a file operation; value(0) is the errno
  kBadFile = 8,  ///< a file is not what it should be; the text names field, expected and got
};

/// Outcome of a call. Trivially copyable: a code, static text and two numbers, so that returning
/// one from a hot path costs nothing; the message is put together when somebody asks for it. Only
/// about_file() pays for the copy of a name.
class [[nodiscard]] Status {
 public:
  constexpr Status() noexcept = default;

  /// `text` and `subject` must live for ever (string literals). In the text `{0}` and `{1}` stand
  /// for the two numbers and `{s}` for the subject, usually the name of the argument at fault.
  /// Numbers that are enum values are written by name where they say what they are: `{0:dtype}`,
  /// `{0:dtypes}` (a set, bit 1 << dtype: "bf16 or f32"), `{0:layout}`. A value without a name
  /// stays a number.
  constexpr Status(StatusCode code, const char* text, int64_t v0 = 0, int64_t v1 = 0,
                   const char* subject = "") noexcept
      : code_(code), text_(text), subject_(subject), values_{v0, v1} {}

  /// As the constructor, about a file: `{f}` in the text stands for its path, of which the last
  /// kFileBytes - 1 bytes are kept. Statuses about environment variables hold the value there.
  QUERN_API static Status about_file(StatusCode code, const char* text, std::string_view path,
                                     int64_t v0 = 0, int64_t v1 = 0,
                                     const char* subject = "") noexcept;
  static constexpr size_t kFileBytes = 88;

  constexpr bool ok() const noexcept { return code_ == StatusCode::kOk; }
  constexpr StatusCode code() const noexcept { return code_; }
  constexpr const char* text() const noexcept { return text_; }
  constexpr const char* subject() const noexcept { return subject_; }
  constexpr int64_t value(int i) const noexcept { return values_[i]; }
  /// "" where the status is not about a file; "..." in front where the path was longer.
  const char* file() const noexcept { return file_.path; }

  /// "invalid argument: a.cols (4095) must equal desc.k (4096)". Allocates.
  QUERN_API std::string message() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  const char* text_ = "";
  const char* subject_ = "";
  int64_t values_[2] = {0, 0};
  // A union with a constructor, so that a status without a file writes one byte of it and not all.
  union File {
    constexpr File() noexcept : none('\0') {}
    char none;
    char path[kFileBytes];
  } file_;
};

QUERN_API const char* to_string(StatusCode code) noexcept;

/// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}        // NOLINT: implicit by design
  Result(Status status) noexcept : status_(status) {}  // NOLINT: implicit by design

  bool ok() const noexcept { return value_.has_value(); }
  const Status& status() const noexcept { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace v0
}  // namespace quern
