#pragma once

#include <memory>

#include "quern/export.h"
#include "quern/status.h"

namespace quern {
inline namespace v0 {

/// Where an op's threads come from. The caller owns the pool; quern never starts a thread that the
/// caller did not ask for.
///
/// `run(phases, fn, ctx)` calls fn(ctx, p, tid, nthreads) for every phase p in [0, phases) and
/// every tid in [0, nthreads), nthreads == size(). All of phase p has completed, and its writes are
/// visible, before any call of phase p + 1 begins. fn does not throw. A pool that promises no
/// concurrency (a loop, or one parallel_for per phase) is a legal implementation: ops never wait
/// inside a phase. `run` must not be called from inside fn on the same pool.
class QUERN_API ThreadPool {
 public:
  using PhaseFn = void (*)(void* ctx, int phase, int tid, int nthreads);

  virtual ~ThreadPool();
  virtual int size() const noexcept = 0;
  virtual void run(int phases, PhaseFn fn, void* ctx) noexcept = 0;
};

/// Runs everything on the calling thread. The default of Context.
class QUERN_API SerialPool final : public ThreadPool {
 public:
  int size() const noexcept override { return 1; }
  void run(int phases, PhaseFn fn, void* ctx) noexcept override;
};

/// `threads - 1` workers plus the calling thread. Workers spin for a short while after each run and
/// then park in the kernel, so that back-to-back ops fork and join in about a microsecond and an
/// idle pool costs nothing. Calls of `run` from several threads are serialised. After fork() the
/// child's first `run` starts workers of its own.
class QUERN_API PersistentPool final : public ThreadPool {
 public:
  /// threads in [1, 1024]. `pin` binds thread i to the i-th CPU of the process's affinity mask
  /// (the calling thread is never moved).
  static Result<std::unique_ptr<PersistentPool>> create(int threads, bool pin = false);
  ~PersistentPool() override;

  int size() const noexcept override;
  void run(int phases, PhaseFn fn, void* ctx) noexcept override;

 private:
  struct Impl;
  explicit PersistentPool(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace v0
}  // namespace quern
