#include "bench/context_set.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/usage_error.h"

namespace quern::bench {
namespace {

Context context_with(ThreadPool* pool, IsaLevel cap) {
  ContextOptions options;
  options.pool = pool;
  if (cap != IsaLevel::kNone) options.max_isa = cap;
  Result<Context> context = Context::from_environment(options);
  if (!context.ok()) throw UsageError(context.status().message());
  return *context;
}

cpu_set_t first_of(const cpu_set_t& set) {
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) {
      CPU_SET(cpu, &one);
      break;
    }
  }
  return one;
}

}  // namespace

ContextSet::ContextSet() : plain_(context_with(nullptr, IsaLevel::kNone)) {
  CPU_ZERO(&cpus_);
  if (sched_getaffinity(0, sizeof cpus_, &cpus_) != 0) CPU_SET(0, &cpus_);
}

int ContextSet::cpu_count() const {
  return std::max(1, CPU_COUNT(&cpus_));
}

const Context& ContextSet::get(int threads, IsaLevel isa) {
  const auto found = entries_.find({threads, isa});
  if (found != entries_.end()) return found->second.context;
  // The pool reads the mask when it pins its workers; ours must be the whole one then.
  (void)sched_setaffinity(0, sizeof cpus_, &cpus_);
  Result<std::unique_ptr<PersistentPool>> pool = PersistentPool::create(threads, true);
  const cpu_set_t first = first_of(cpus_);
  (void)sched_setaffinity(0, sizeof first, &first);
  if (!pool.ok()) throw UsageError(fmt::format("thr:{}: {}", threads, pool.status().message()));
  Context context = context_with(pool->get(), isa);
  const auto entry =
      entries_.emplace(std::make_pair(threads, isa), Entry{std::move(*pool), std::move(context)});
  return entry.first->second.context;
}

}  // namespace quern::bench
