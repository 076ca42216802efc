#include "ops/run_report.h"

#include "ops/status_text.h"
#include "ops/text_writer.h"

namespace quern::inline v0 {
namespace {

int64_t ns_since(std::chrono::steady_clock::time_point start) noexcept {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Status CreateReport::dispatched(const Dispatch& dispatch) {
  if (const Candidate* chosen = dispatch.chosen()) problem_.isa = chosen->level;
  for (const Candidate& c : dispatch.candidates) {
    if (c.refused == nullptr) continue;
    ctx_.verbose.write({.event = kVerboseDispatch,
                        .kernel = c.family,
                        .problem = &problem_,
                        .of = ProblemOf::kPlan,
                        .threads = problem_.threads,
                        .detail = c.refused});
  }
  return dispatch.status.ok() ? Status() : failed(dispatch.status);
}

Status CreateReport::failed(const Status& status) {
  if (ctx_.verbose.on(kVerboseError)) {
    const std::string message = status.message();
    ctx_.verbose.write({.event = kVerboseError,
                        .problem = &problem_,
                        .of = ProblemOf::kPlan,
                        .threads = problem_.threads,
                        .detail = message});
  }
  return status;
}

void CreateReport::created(std::string_view kernel) {
  ctx_.verbose.write({.event = kVerboseCreate,
                      .kernel = kernel,
                      .problem = &problem_,
                      .of = ProblemOf::kPlan,
                      .threads = problem_.threads,
                      .ns = ns_since(start_)});
}

// Copying the plan's Problem copies its op name, which fits std::string's inline buffer: no
// allocation.
Problem RunReport::problem() const {
  Problem problem = problem_;
  problem.batch = facts_.batch;
  problem.m = facts_.m;
  problem.isa = facts_.isa;
  return problem;
}

Status RunReport::failed(const Status& status) const noexcept {
  if (!ctx_.verbose.on(kVerboseError)) return status;
  const Problem problem = this->problem();
  char buffer[512];
  TextWriter message(buffer, sizeof buffer);
  write_message(status, &message);
  ctx_.verbose.write({.event = kVerboseError,
                      .problem = &problem,
                      .threads = ctx_.pool->size(),
                      .detail = {message.data(), message.size()}});
  return status;
}

void RunReport::finished(int threads) const noexcept {
  if (!ctx_.verbose.on(kVerboseExec)) return;
  const Problem problem = this->problem();
  ctx_.verbose.write({.event = kVerboseExec,
                      .kernel = kernel_,
                      .problem = &problem,
                      .threads = threads,
                      .ns = ns_since(start_)});
}

}  // namespace quern::inline v0
