#include "ops/run_report.h"

#include "ops/status_text.h"
#include "ops/text_writer.h"

namespace quern::inline v0 {
namespace {

uint64_t ns_since(std::chrono::steady_clock::time_point start) noexcept {
  return static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count());
}

}  // namespace

Status CreateReport::failed(const Status& status) {
  if (ctx_.verbose.on(kVerboseError)) {
    const std::string message = status.message();
    ctx_.verbose.write({.event = kVerboseError,
                        .problem = &problem_,
                        .threads = problem_.threads,
                        .detail = message});
  }
  return status;
}

void CreateReport::created(std::string_view kernel) {
  ctx_.verbose.write({.event = kVerboseCreate,
                      .kernel = kernel,
                      .problem = &problem_,
                      .threads = problem_.threads,
                      .ns = ns_since(start_)});
}

// Copying the plan's Problem copies its op name, which fits std::string's inline buffer: no
// allocation.
Status RunReport::failed(const Status& status) const noexcept {
  if (!ctx_.verbose.on(kVerboseError)) return status;
  Problem problem = problem_;
  problem.m = m_;
  char buffer[512];
  TextWriter message(buffer, sizeof buffer);
  write_message(status, &message);
  ctx_.verbose.write({.event = kVerboseError,
                      .problem = &problem,
                      .threads = ctx_.pool->size(),
                      .detail = {message.data(), message.size()}});
  return status;
}

void RunReport::finished() const noexcept {
  if (!ctx_.verbose.on(kVerboseExec)) return;
  Problem problem = problem_;
  problem.m = m_;
  problem.isa = ctx_.level;
  ctx_.verbose.write({.event = kVerboseExec,
                      .kernel = kernel_,
                      .problem = &problem,
                      .threads = ctx_.pool->size(),
                      .ns = ns_since(start_)});
}

}  // namespace quern::inline v0
