#include "jit/kernel_cache.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

#include "jit/per_process.h"

namespace quern::jit {
namespace {

/// One thread-distinct address: who generates an entry, without <thread>.
const void* this_thread() {
  static thread_local const char marker = 0;
  return &marker;
}

/// One name. Made by the first caller, who alone sets `outcome`; the mutex covers everything.
struct Entry {
  explicit Entry(const void* generator) : generating(generator) {}

  std::mutex mutex;
  std::condition_variable ready;
  const void* generating;  ///< null once `status` and `kernel` stand
  Status status;
  KernelHandle kernel;
};

using EntryPtr = std::shared_ptr<Entry>;

Result<KernelHandle> outcome_of(const Entry& entry) {
  if (!entry.status.ok()) return entry.status;
  return entry.kernel;
}

Result<KernelHandle> wait_for(Entry& entry) {
  std::unique_lock<std::mutex> lock(entry.mutex);
  if (entry.generating == this_thread()) {
    return Status(StatusCode::kInternal, "a kernel generator asked the cache for its own kernel");
  }
  entry.ready.wait(lock, [&] { return entry.generating == nullptr; });
  return outcome_of(entry);
}

void finish(Entry& entry, const Result<KernelHandle>& outcome) {
  const std::lock_guard<std::mutex> lock(entry.mutex);
  entry.status = outcome.status();
  if (outcome.ok()) entry.kernel = *outcome;
  entry.generating = nullptr;
  entry.ready.notify_all();
}

struct Shard {
  std::mutex mutex;
  std::unordered_map<std::string, EntryPtr> entries;
};

/// The names of one process. A forked child starts without any: at the moment of the fork some
/// shard may have been locked or half changed, and some entry's generator or waiters at work, by
/// threads that the child does not have.
struct Names {
  // 16 shards: plans are created by a few threads, and a lookup holds its shard for under a
  // microsecond; one lock would do, this is cheap.
  static constexpr size_t kShards = 16;

  Names(pid_t of_process, Names* of_parent)
      : pid(of_process), inherited(of_parent), shards(std::make_unique<Shard[]>(kShards)) {}
  // What a parent left behind is in no state to be destroyed, so a child keeps it.
  ~Names() {
    if (pid != ::getpid()) (void)shards.release();
  }
  Shard& shard_of(const std::string& name) {
    return shards[std::hash<std::string>()(name) % kShards];
  }

  const pid_t pid;
  Names* const inherited;
  std::unique_ptr<Shard[]> shards;
};

void forget(Names& names, const std::string& name, const EntryPtr& entry) noexcept {
  Shard& shard = names.shard_of(name);
  const std::lock_guard<std::mutex> lock(shard.mutex);
  const auto it = shard.entries.find(name);
  if (it != shard.entries.end() && it->second == entry) shard.entries.erase(it);
}

}  // namespace

struct KernelCache::Impl {
  Impl(CodeMemory code_memory, CodeRegistry* code_registry)
      : memory(std::move(code_memory)), registry(code_registry) {}

  Result<KernelHandle> generate(const std::string& name, const Make& make);
  Result<KernelHandle> generate_caught(const std::string& name, const Make& make) noexcept;

  CodeMemory memory;
  CodeRegistry* registry;
  PerProcess<Names> names;
  std::atomic<uint64_t> hits{0}, kernels{0}, failures{0}, code_bytes{0}, generate_ns{0};
};

Result<KernelHandle> KernelCache::Impl::generate(const std::string& name, const Make& make) {
  const auto start = std::chrono::steady_clock::now();
  Result<GeneratedCode> code = make();
  if (!code.ok()) return code.status();
  if (code->name != name) {
    return Status(StatusCode::kInternal, "a generator named its kernel otherwise than its config");
  }
  Result<std::shared_ptr<const CodeBlock>> block =
      memory.publish(code->bytes.data(), code->bytes.size());
  if (!block.ok()) return block.status();
  auto kernel = std::make_shared<Kernel>();
  kernel->name = name;
  kernel->entry = (*block)->entry();
  kernel->code_bytes = (*block)->size();
  kernel->code = std::move(*block);
  const auto spent = std::chrono::steady_clock::now() - start;
  kernel->generate_ns =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count());
  generate_ns += kernel->generate_ns;
  code_bytes += kernel->code_bytes;
  ++kernels;
  if (registry != nullptr) kernel->records = registry->published(*code, *kernel);
  return KernelHandle(std::move(kernel));
}

// Whatever a generator does, its entry gets an outcome: a promise left broken would fail every
// later plan with an error about promises instead of the cause (FBGEMM's code cache did that).
Result<KernelHandle> KernelCache::Impl::generate_caught(const std::string& name,
                                                        const Make& make) noexcept {
  try {
    return generate(name, make);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "no memory while a kernel was generated");
  } catch (...) {
    return Status(StatusCode::kInternal, "a kernel generator threw an exception");
  }
}

KernelCache::KernelCache(CodeMemory memory, CodeRegistry* registry)
    : impl_(std::make_unique<Impl>(std::move(memory), registry)) {}
KernelCache::~KernelCache() = default;

Result<KernelHandle> KernelCache::get(const std::string& name, const Make& make) noexcept {
  Names* names = nullptr;
  EntryPtr entry;
  bool mine = false;
  try {
    names = &impl_->names.get();
    Shard& shard = names->shard_of(name);
    const std::lock_guard<std::mutex> lock(shard.mutex);
    EntryPtr& slot = shard.entries[name];
    if (slot == nullptr) {
      slot = std::make_shared<Entry>(this_thread());
      mine = true;
    }
    entry = slot;
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "no memory for an entry of the kernel cache");
  }
  if (!mine) {
    ++impl_->hits;
    return wait_for(*entry);
  }
  Result<KernelHandle> outcome = impl_->generate_caught(name, make);
  if (!outcome.ok()) ++impl_->failures;
  // The generator forked and this is the child: nobody here waits for the parent's entry, and its
  // lock may be held by a thread that does not exist.
  if (names->pid != ::getpid()) return outcome;
  // Before the waiters wake: one of them may try again at once and must not meet this entry.
  if (outcome.status().code() == StatusCode::kOutOfMemory) forget(*names, name, entry);
  finish(*entry, outcome);
  return outcome;
}

KernelCacheStats KernelCache::stats() const noexcept {
  return {impl_->hits, impl_->kernels, impl_->failures, impl_->code_bytes, impl_->generate_ns};
}

}  // namespace quern::jit
