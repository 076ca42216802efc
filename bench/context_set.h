#pragma once

#include <sched.h>

#include <map>
#include <memory>
#include <utility>

#include "quern/context.h"
#include "quern/isa.h"
#include "quern/thread_pool.h"

namespace quern::bench {

/// A Context for each thread count and level cap, with its own pinned pool. The environment is
/// respected (QUERN_MAX_ISA, QUERN_JIT, ...). Pools that are not in use have parked threads.
class ContextSet {
 public:
  /// Throws UsageError where the environment is wrong.
  ContextSet();

  /// `threads` >= 1; `isa` kNone: no cap. Also pins the calling thread to the first CPU, beside
  /// which the pool's workers have theirs, as OpenMP does for the peer. Throws UsageError.
  const Context& get(int threads, IsaLevel isa);

  /// Of the machine, with the environment's cap in isa().
  const Context& plain() const { return plain_; }
  int cpu_count() const;

 private:
  struct Entry {
    std::unique_ptr<ThreadPool> pool;
    Context context;
  };

  cpu_set_t cpus_;  ///< of the process before anything was pinned
  Context plain_;
  std::map<std::pair<int, IsaLevel>, Entry> entries_;
};

}  // namespace quern::bench
