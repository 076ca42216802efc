#include "quern/thread_pool.h"

#include <atomic>
#include <memory>
#include <new>
#include <utility>

#include "ops/thread_team.h"

namespace quern::inline v0 {
namespace {

constexpr int kMaxThreads = 1024;

void run_serially(int threads, int phases, ThreadPool::PhaseFn fn, void* ctx) noexcept {
  for (int phase = 0; phase < phases; ++phase) {
    for (int tid = 0; tid < threads; ++tid) fn(ctx, phase, tid, threads);
  }
}

}  // namespace

ThreadPool::~ThreadPool() = default;

void SerialPool::run(int phases, PhaseFn fn, void* ctx) noexcept {
  run_serially(1, phases, fn, ctx);
}

// A nested type of an exported class would be exported with it.
struct [[gnu::visibility("hidden")]] PersistentPool::Impl {
  explicit Impl(const TeamOptions& team_options) : options(team_options) {}
  ~Impl() {
    ThreadTeam* t = team.load(std::memory_order_acquire);
    while (t != nullptr) {
      const std::unique_ptr<ThreadTeam> owned(t);
      t = t->previous();
    }
  }

  // The team of this process: after a fork a new one takes the place of the parent's, whose mutex
  // may have been copied in a locked state. Null when there is no memory for it.
  ThreadTeam* current() noexcept {
    ThreadTeam* seen = team.load(std::memory_order_acquire);
    while (!seen->same_process()) {
      std::unique_ptr<ThreadTeam> fresh = make_team(seen);
      if (fresh == nullptr) return nullptr;
      if (team.compare_exchange_strong(seen, fresh.get(), std::memory_order_acq_rel)) {
        return fresh.release();
      }
    }
    return seen;
  }

  std::unique_ptr<ThreadTeam> make_team(ThreadTeam * previous) const noexcept {
    try {
      return std::make_unique<ThreadTeam>(options, previous);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  const TeamOptions options;
  std::atomic<ThreadTeam*> team{nullptr};
};

Result<std::unique_ptr<PersistentPool>> PersistentPool::create(int threads, bool pin) {
  if (threads < 1 || threads > kMaxThreads) {
    return Status(StatusCode::kInvalidArgument, "threads ({0}) must be in [1, {1}]", threads,
                  kMaxThreads);
  }
  try {
    auto impl = std::make_unique<Impl>(TeamOptions{.threads = threads, .pin = pin});
    auto team = std::make_unique<ThreadTeam>(impl->options);
    if (const Status status = team->start(); !status.ok()) return status;
    impl->team.store(team.release(), std::memory_order_release);
    return std::unique_ptr<PersistentPool>(new PersistentPool(std::move(impl)));
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "no memory for a pool of {0} threads", threads);
  }
}

PersistentPool::PersistentPool(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}

PersistentPool::~PersistentPool() = default;

int PersistentPool::size() const noexcept {
  return impl_->options.threads;
}

void PersistentPool::run(int phases, PhaseFn fn, void* ctx) noexcept {
  ThreadTeam* team = impl_->current();
  if (team == nullptr) {
    run_serially(size(), phases, fn, ctx);
    return;
  }
  team->run(phases, fn, ctx);
}

}  // namespace quern::inline v0
