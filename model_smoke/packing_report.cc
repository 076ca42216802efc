#include "model_smoke/packing_report.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include <fmt/format.h>

namespace quern::smoke {
namespace {

constexpr double kPatience = 1.0;  // seconds before the first line
constexpr double kPause = 0.25;    // between two, on a terminal
constexpr double kLongPause = 5;   // in a log

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

PackingReport::PackingReport()
    : terminal_(isatty(STDERR_FILENO) != 0), next_(seconds() + kPatience) {}

PackProgress PackingReport::of(const std::string& modules) {
  modules_ = modules;
  return {&PackingReport::note, this};
}

void PackingReport::note(void* self, int64_t done, int64_t total) {
  auto& report = *static_cast<PackingReport*>(self);
  const double now = seconds();
  if (now < report.next_) return;
  const std::string text = fmt::format("packing {}: {} of {} panels", report.modules_, done, total);
  if (report.terminal_) {
    report.next_ = now + kPause;
    report.written_ = true;
    fmt::print(stderr, "\r{}\033[K", text);
    std::fflush(stderr);
  } else {
    report.next_ = now + kLongPause;
    fmt::print(stderr, "{}\n", text);
  }
}

void PackingReport::finish() {
  if (written_) fmt::print(stderr, "\n");
  written_ = false;
}

}  // namespace quern::smoke
