#pragma once

/// A ThreadPool made of OpenMP's threads, for programs that use OpenMP anyway and do not want a
/// second team beside it. Only here is OpenMP mentioned: libquern neither links nor needs it.
/// Compile what includes this with -fopenmp.
#ifndef _OPENMP
#error "quern/openmp_pool.h needs OpenMP: compile with -fopenmp"
#endif

#include <omp.h>

#include "quern/status.h"
#include "quern/thread_pool.h"

namespace quern {
inline namespace v0 {

/// Each run is one parallel region with a barrier between phases. It keeps the contract whatever
/// OpenMP does with the request: with fewer threads than asked for (OMP_THREAD_LIMIT, OMP_DYNAMIC),
/// inside another parallel region (usually one thread), each of them does several tids' share, and
/// size() and every bit of the result stay. `run` may be called from several threads at once, and
/// from inside fn. An exception that leaves fn ends the program, as with every pool.
class OpenMpPool final : public ThreadPool {
 public:
  static constexpr int kMaxThreads = 1024;

  /// threads in [1, kMaxThreads]. Starts nothing: OpenMP does, in the first run.
  static Result<OpenMpPool> create(int threads = omp_get_max_threads()) {
    if (threads < 1 || threads > kMaxThreads) {
      return Status(StatusCode::kInvalidArgument, "threads ({0}) must be in [1, {1}]", threads,
                    kMaxThreads);
    }
    return OpenMpPool(threads);
  }

  int size() const noexcept override { return threads_; }

  void run(int phases, PhaseFn fn, void* ctx) noexcept override {
    const int threads = threads_;
#pragma omp parallel num_threads(threads)
    {
      const int first = omp_get_thread_num();
      const int step = omp_get_num_threads();
      for (int phase = 0; phase < phases; ++phase) {
        if (phase > 0) {
#pragma omp barrier
        }
        for (int tid = first; tid < threads; tid += step) fn(ctx, phase, tid, threads);
      }
    }
  }

 private:
  explicit OpenMpPool(int threads) noexcept : threads_(threads) {}
  int threads_;
};

}  // namespace v0
}  // namespace quern
