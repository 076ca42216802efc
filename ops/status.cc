#include "quern/status.h"

#include <algorithm>
#include <string>
#include <string_view>

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
    case StatusCode::kIoError:
      return "I/O error";
    case StatusCode::kBadFile:
      return "bad file";
  }
  return "unknown status";
}

namespace {

constexpr DType kDTypes[] = {DType::kF32,  DType::kBF16, DType::kF16, DType::kS8,
                             DType::kU8,   DType::kS32,  DType::kU4,  DType::kE4M3,
                             DType::kE5M2, DType::kE2M1, DType::kE8M0};

void write_dtype(int64_t value, TextWriter* out) noexcept {
  for (const DType t : kDTypes) {
    if (status_value(t) == value) return out->text(to_string(t));
  }
  out->number(value);
}

/// "f32", "f32 or bf16", "f32, bf16 or f16".
void write_dtypes(int64_t bits, TextWriter* out) noexcept {
  bool first = true;
  for (const DType t : kDTypes) {
    const int64_t bit = status_value({t});
    if ((bits & bit) == 0) continue;
    bits ^= bit;
    if (!first) out->text(bits == 0 ? " or " : ", ");
    out->text(to_string(t));
    first = false;
  }
}

void write_layout(int64_t value, TextWriter* out) noexcept {
  const char* const name = to_string(static_cast<WeightLayout>(value));
  if (name == std::string_view("unknown")) return out->number(value);
  out->text(name);
}

void write_value(int64_t value, std::string_view kind, TextWriter* out) noexcept {
  if (kind == "dtype") return write_dtype(value, out);
  if (kind == "dtypes") return write_dtypes(value, out);
  if (kind == "layout") return write_layout(value, out);
  out->number(value);
}

/// Writes the field that `text` begins with, "{s}", "{f}", "{0}" or "{1:dtype}", and returns how
/// long it is; 0 where there is none.
size_t write_field(std::string_view text, const Status& status, TextWriter* out) noexcept {
  const size_t end = text.find('}');
  if (text[0] != '{' || end == std::string_view::npos || end < 2) return 0;
  const char which = text[1];
  if (which == 's' && end == 2) {
    if (status.subject() != nullptr) out->text(status.subject());
    return end + 1;
  }
  if (which == 'f' && end == 2) {
    out->text(status.file());
    return end + 1;
  }
  if (which != '0' && which != '1') return 0;
  if (end > 2 && text[2] != ':') return 0;
  const std::string_view kind = end == 2 ? std::string_view() : text.substr(3, end - 3);
  write_value(status.value(which - '0'), kind, out);
  return end + 1;
}

}  // namespace

Status Status::about_file(StatusCode code, const char* text, std::string_view path, int64_t v0,
                          int64_t v1, const char* subject) noexcept {
  constexpr std::string_view kCut = "...";
  Status status(code, text, v0, v1, subject);
  char* to = status.file_.path;
  if (path.size() >= kFileBytes) {
    path.remove_prefix(path.size() - (kFileBytes - 1 - kCut.size()));
    to = std::copy(kCut.begin(), kCut.end(), to);
  }
  *std::copy(path.begin(), path.end(), to) = '\0';
  return status;
}

void write_message(const Status& status, TextWriter* out) noexcept {
  out->text(to_string(status.code()));
  if (status.text() == nullptr || *status.text() == '\0') return;
  out->text(": ");
  std::string_view rest = status.text();
  while (!rest.empty()) {
    const size_t field = write_field(rest, status, out);
    if (field == 0) out->text(rest.substr(0, 1));
    rest.remove_prefix(field == 0 ? 1 : field);
  }
}

std::string Status::message() const {
  return to_text([this](TextWriter* out) { write_message(*this, out); });
}

}  // namespace quern::inline v0
