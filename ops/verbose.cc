#include "ops/verbose.h"

#include <cstdio>
#include <utility>

#include "ops/problem_text.h"

namespace quern::inline v0 {
namespace {

constexpr size_t kLineBytes = 1024;
constexpr std::string_view kCut = "...";
constexpr std::string_view kTemplate =
    "quern_verbose,v1,template,op,kernel,problem,threads,ms,detail";

std::string_view event_name(VerboseFlags event) noexcept {
  switch (event) {
    case kVerboseError:
      return "error";
    case kVerboseDispatch:
      return "dispatch";
    case kVerboseCreate:
      return "create";
    case kVerboseExec:
      return "exec";
    default:
      return "?";
  }
}

void field(std::string_view s, TextWriter* out) noexcept {
  for (const char c : s) {
    const bool breaks_line = c == ',' || c == '\n' || c == '\r' || c == '\0';
    out->text(breaks_line ? std::string_view(";") : std::string_view(&c, 1));
  }
}

// Nanoseconds as milliseconds with six decimals, in integers: printf would follow the host's locale
// and could write a decimal comma.
void milliseconds(int64_t ns, TextWriter* out) noexcept {
  constexpr int64_t kNsPerMs = 1'000'000;
  out->number(ns / kNsPerMs);
  char decimals[7] = {'.', '0', '0', '0', '0', '0', '0'};
  int64_t rest = ns % kNsPerMs;
  for (int i = 6; i >= 1; --i, rest /= 10) decimals[i] = static_cast<char>('0' + rest % 10);
  out->text({decimals, sizeof decimals});
}

}  // namespace

Verbose::Verbose(uint32_t flags, VerboseSink sink, void* user, std::string about)
    : flags_(flags), sink_(sink), user_(user), about_(std::move(about)) {}

void Verbose::write(const VerboseLine& line) noexcept {
  if (!on(line.event)) return;
  const std::string_view op =
      line.problem != nullptr ? std::string_view(line.problem->op) : std::string_view("-");
  const ProcessLock::Hold hold(lock_);
  emit(event_name(line.event), op, line);
}

void Verbose::write_always(std::string_view op, std::string_view detail) noexcept {
  VerboseLine line;
  line.detail = detail;
  const ProcessLock::Hold hold(lock_);
  emit(event_name(kVerboseError), op, line);
}

void Verbose::emit(std::string_view event, std::string_view op, const VerboseLine& line) noexcept {
  if (!header_written_) {
    header_written_ = true;
    char header[kLineBytes];
    TextWriter text(header, sizeof header - 1);
    text.text(kTemplate);
    put(&text);
    VerboseLine about;
    about.detail = about_;
    emit("info", "context", about);
  }
  char buffer[kLineBytes];
  TextWriter text(buffer, sizeof buffer - 1);  // one byte for the terminator
  text.text("quern_verbose,v1,");
  text.text(event);
  text.text(",");
  field(op.empty() ? "-" : op, &text);
  text.text(",");
  field(line.kernel.empty() ? "-" : line.kernel, &text);
  text.text(",");
  if (line.problem != nullptr) {
    write_problem(*line.problem, line.of, &text);
  } else {
    text.text("-");
  }
  text.text(",");
  if (line.threads > 0) {
    text.text("thr");
    text.number(line.threads);
  } else {
    text.text("-");
  }
  text.text(",");
  if (line.ns >= 0) {
    milliseconds(line.ns, &text);
  } else {
    text.text("-");
  }
  if (!line.detail.empty()) {
    text.text(",");
    field(line.detail, &text);
  }
  put(&text);
}

void Verbose::put(TextWriter* text) noexcept {
  char* const line = text->data();
  const size_t size = text->size();
  if (text->truncated()) kCut.copy(line + size - kCut.size(), kCut.size());
  if (sink_ != nullptr) {
    line[size] = '\0';
    sink_(user_, line);
    return;
  }
  // One write, so that lines of several contexts and processes stay whole.
  line[size] = '\n';
  std::fwrite(line, 1, size + 1, stderr);
}

}  // namespace quern::inline v0
