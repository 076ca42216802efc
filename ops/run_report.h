#pragma once

#include <chrono>
#include <string_view>
#include <utility>

#include "ops/context_impl.h"
#include "ops/dispatch.h"
#include "quern/problem.h"
#include "quern/status.h"

namespace quern::inline v0 {

/// The verbose lines of one create(): the candidates that were refused, then one for the plan or
/// one error. All of them show the same problem, which is the plan's from then on.
class CreateReport {
 public:
  CreateReport(ContextImpl& ctx, Problem problem)
      : ctx_(ctx), problem_(std::move(problem)), start_(std::chrono::steady_clock::now()) {
    problem_.threads = ctx.pool->size();
  }
  /// The problem with the threads of the pool and, after dispatched(), the level of the family that
  /// was chosen.
  const Problem& problem() const noexcept { return problem_; }
  /// dispatch.status, reported.
  Status dispatched(const Dispatch& dispatch);
  Status failed(const Status& status);
  void created(std::string_view kernel);

 private:
  ContextImpl& ctx_;
  Problem problem_;
  std::chrono::steady_clock::time_point start_;
};

/// What a call adds to the problem of its plan.
struct RunFacts {
  int64_t batch = 0;  ///< bmm only
  int64_t m = 0;
  IsaLevel isa = IsaLevel::kNone;  ///< of the kernel, which for few rows may be below the plan's
};

/// The verbose line of one run(). Costs a branch when nobody listens; allocates nothing.
class RunReport {
 public:
  /// The problem of the plan and the name of the kernel that runs must outlive the report.
  RunReport(ContextImpl& ctx, const Problem& problem, std::string_view kernel,
            const RunFacts& facts) noexcept
      : ctx_(ctx), problem_(problem), kernel_(kernel), facts_(facts) {
    if (ctx.verbose.on(kVerboseExec)) start_ = std::chrono::steady_clock::now();
  }
  Status failed(const Status& status) const noexcept;
  /// Another kernel than for rows as the caller counts them; its name must outlive the report.
  void runs(std::string_view kernel) noexcept { kernel_ = kernel; }
  /// `threads`: how many computed.
  void finished(int threads) const noexcept;

 private:
  Problem problem() const;

  ContextImpl& ctx_;
  const Problem& problem_;
  std::string_view kernel_;
  RunFacts facts_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace quern::inline v0
