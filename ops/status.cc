#include "quern/status.h"

#include <string>

namespace quern::inline v0 {

const char* to_string(StatusCode code) noexcept {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kTooLarge:
      return "too large";
    case StatusCode::kOutOfMemory:
      return "out of memory";
    case StatusCode::kJitUnavailable:
      return "JIT unavailable";
    case StatusCode::kInternal:
      return "internal error";
  }
  return "unknown status";
}

std::string Status::message() const {
  std::string out = to_string(code_);
  if (text_ == nullptr || *text_ == '\0') return out;
  out += ": ";
  for (const char* p = text_; *p != '\0'; ++p) {
    const bool is_field = p[0] == '{' && p[1] != '\0' && p[2] == '}';
    if (is_field && (p[1] == '0' || p[1] == '1')) {
      out += std::to_string(values_[p[1] - '0']);
      p += 2;
    } else if (is_field && p[1] == 's') {
      out += subject_ == nullptr ? "" : subject_;
      p += 2;
    } else {
      out += *p;
    }
  }
  return out;
}

}  // namespace quern::inline v0
