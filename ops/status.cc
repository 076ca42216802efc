#include "quern/status.h"

#include <string>

#include "ops/status_text.h"
#include "ops/text_writer.h"

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

void write_message(const Status& status, TextWriter* out) noexcept {
  out->text(to_string(status.code()));
  const char* p = status.text();
  if (p == nullptr || *p == '\0') return;
  out->text(": ");
  for (; *p != '\0'; ++p) {
    const bool is_field = p[0] == '{' && p[1] != '\0' && p[2] == '}';
    if (is_field && (p[1] == '0' || p[1] == '1')) {
      out->number(status.value(p[1] - '0'));
      p += 2;
    } else if (is_field && p[1] == 's') {
      if (status.subject() != nullptr) out->text(status.subject());
      p += 2;
    } else {
      out->text({p, 1});
    }
  }
}

std::string Status::message() const {
  return to_text([this](TextWriter* out) { write_message(*this, out); });
}

}  // namespace quern::inline v0
