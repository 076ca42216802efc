#include "ops/thread_team.h"

#include <errno.h>
#include <immintrin.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <new>

namespace quern::inline v0 {
namespace {

// A parked worker needs 5 to 50 us to wake. Within a model's layer the gaps between ops are shorter
// than this, so back-to-back ops find the workers spinning; an idle pool burns 50 us once.
constexpr int64_t kSpinNs = 50'000;

// steady_clock costs about 25 ns, so it is read once in so many pauses (0.3 us on Zen 5, 1 us on
// Xeons, whose pause takes 140 cycles).
constexpr int kPausesPerClockRead = 16;

// Threads that count down on one cache line. A line that eight cores write in turn costs about as
// much as the second level of the tree, so teams of up to eight have one level.
constexpr int kGroupThreads = 8;

int64_t now_ns() noexcept {
  const auto t = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t).count();
}

// The kernel reads the 32-bit word itself.
static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);

void futex_wait(const std::atomic<uint32_t>* word, uint32_t while_equal) noexcept {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_equal, nullptr, nullptr, 0);
}

void futex_wake_all(const std::atomic<uint32_t>* word) noexcept {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// CPUs that `pid` (0: the calling thread) may run on, ascending. Empty when the kernel will not
// say.
std::vector<int> allowed_cpus(pid_t pid) noexcept try {
  // The mask must be at least as long as the kernel's own; no kernel has more than 2^16 CPUs.
  for (int cpus = CPU_SETSIZE; cpus <= 1 << 16; cpus *= 4) {
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    std::vector<unsigned long> mask(bytes / sizeof(unsigned long));
    auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
    if (sched_getaffinity(pid, bytes, set) != 0) {
      if (errno == EINVAL) continue;
      return {};
    }
    std::vector<int> found;
    for (int cpu = 0; cpu < cpus; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) found.push_back(cpu);
    }
    return found;
  }
  return {};
} catch (const std::bad_alloc&) {
  return {};
}

Status set_affinity(pthread_attr_t* attr, int cpu) noexcept try {
  const size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
  std::vector<unsigned long> mask(bytes / sizeof(unsigned long));
  auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
  CPU_SET_S(cpu, bytes, set);
  const int error = pthread_attr_setaffinity_np(attr, bytes, set);
  if (error == 0) return Status();
  return Status(StatusCode::kOutOfMemory, "cannot bind a worker to CPU {0}: errno {1}", cpu, error);
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kOutOfMemory, "no memory for a CPU mask");
}

// Blocks signals in the calling thread, and so in the threads it starts, for the object's lifetime:
// a host's handlers keep running on the host's threads. Faults stay open, because a blocked fault
// kills the process instead of reaching its handler (the AMX emulator lives in SIGILL), and so does
// the profiler's signal, which asks every thread.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t set;
    sigfillset(&set);
    for (const int open : {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGTRAP, SIGSYS, SIGABRT, SIGPROF}) {
      sigdelset(&set, open);
    }
    pthread_sigmask(SIG_SETMASK, &set, &saved_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t saved_;
};

}  // namespace

ForkSentinel::ForkSentinel() noexcept : pid_(getpid()) {
  const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  // Some emulators accept any advice and do nothing; one that accepts nonsense is not believed.
  const bool honest = madvise(page, bytes, -1) != 0;
  if (!honest || madvise(page, bytes, MADV_WIPEONFORK) != 0) {
    munmap(page, bytes);
    return;
  }
  page_ = new (page) std::atomic<uint32_t>(1);
}

ForkSentinel::~ForkSentinel() {
  if (page_ != nullptr) munmap(page_, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
}

bool ForkSentinel::same_process() const noexcept {
  if (page_ != nullptr) return page_->load(std::memory_order_relaxed) != 0;
  return getpid() == pid_;
}

// set() stores the word and then reads sleepers_; wait_while() counts itself in sleepers_ and then
// reads the word. Both in sequentially consistent order, so at least one sees the other.
void WaitWord::set(uint32_t value) noexcept {
  value_.store(value, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) futex_wake_all(&value_);
}

void WaitWord::wait_while(uint32_t old, int64_t spin_ns) noexcept {
  if (load() != old) return;
  if (spin_ns > 0) {
    const int64_t deadline = now_ns() + spin_ns;
    do {
      for (int i = 0; i < kPausesPerClockRead; ++i) {
        if (load() != old) return;
        _mm_pause();
      }
    } while (now_ns() < deadline);
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (value_.load(std::memory_order_seq_cst) == old) futex_wait(&value_, old);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

ThreadTeam::ThreadTeam(const TeamOptions& options, ThreadTeam* previous)
    : options_(options),
      previous_(previous),
      workers_(static_cast<size_t>(options.threads - 1)),
      groups_(static_cast<size_t>((options.threads + kGroupThreads - 1) / kGroupThreads)) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int first = static_cast<int>(g) * kGroupThreads;
    groups_[g].full = std::min(kGroupThreads, options.threads - first);
    groups_[g].left.store(groups_[g].full, std::memory_order_relaxed);
  }
  root_.full = static_cast<int>(groups_.size());
  root_.left.store(root_.full, std::memory_order_relaxed);
  // Spinning only helps when the thread that is waited for has a CPU of its own; with more threads
  // than CPUs it keeps that thread from running.
  const size_t cpus = allowed_cpus(options.pin ? getpid() : 0).size();
  spin_ns_ = cpus >= static_cast<size_t>(options.threads) ? kSpinNs : 0;
}

ThreadTeam::~ThreadTeam() {
  if (started_ && same_process()) stop_locked(static_cast<int>(workers_.size()));
}

Status ThreadTeam::start() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return start_locked();
}

Status ThreadTeam::start_locked() noexcept {
  if (started_) return Status();
  std::vector<int> cpus;
  if (options_.pin) {
    cpus = allowed_cpus(getpid());
    if (cpus.empty()) {
      return Status(StatusCode::kUnsupported, "pin: cannot read the process's affinity mask");
    }
  }
  pthread_attr_t attr;
  if (const int error = pthread_attr_init(&attr); error != 0) {
    return Status(StatusCode::kOutOfMemory, "pthread_attr_init: errno {0}", error);
  }
  const SignalsBlocked blocked;
  Status status;
  int started = 0;
  for (Worker& worker : workers_) {
    worker.team = this;
    worker.tid = started + 1;
    status = start_worker(&worker, &attr, cpus);
    if (!status.ok()) break;
    ++started;
  }
  pthread_attr_destroy(&attr);
  if (!status.ok()) {
    stop_locked(started);
    return status;
  }
  started_ = true;
  return Status();
}

Status ThreadTeam::start_worker(Worker* worker, pthread_attr_t* attr,
                                const std::vector<int>& cpus) noexcept {
  if (!cpus.empty()) {
    const int cpu = cpus[static_cast<size_t>(worker->tid) % cpus.size()];
    if (const Status status = set_affinity(attr, cpu); !status.ok()) return status;
  }
  const int error = options_.start(&worker->thread, attr, &worker_main, worker);
  if (error != 0) {
    return Status(StatusCode::kOutOfMemory, "cannot start worker thread {0}: errno {1}",
                  worker->tid, error);
  }
  char name[16];  // what the kernel keeps
  snprintf(name, sizeof name, "quern-%d", worker->tid);
  pthread_setname_np(worker->thread, name);  // for profilers; a failure does not matter
  return Status();
}

void ThreadTeam::stop_locked(int started) noexcept {
  stop_ = true;
  start_.set(++run_);
  for (int i = 0; i < started; ++i) pthread_join(workers_[static_cast<size_t>(i)].thread, nullptr);
  stop_ = false;
  start_.set(run_ = 0);
  started_ = false;
}

void* ThreadTeam::worker_main(void* arg) {
  const Worker& worker = *static_cast<Worker*>(arg);
  ThreadTeam& team = *worker.team;
  uint32_t run = 0;
  uint32_t epoch = 0;
  for (;;) {
    // The caller cannot start a second run before this worker has arrived in the first, so the word
    // is never more than one ahead.
    team.start_.wait_while(run++, team.spin_ns_);
    if (team.stop_) return nullptr;
    team.work(worker.tid, &epoch);
  }
}

void ThreadTeam::work(int tid, uint32_t* epoch) noexcept {
  const Job job = job_;
  for (int phase = 0; phase < job.phases; ++phase) {
    job.fn(job.ctx, phase, tid, options_.threads);
    const uint32_t before = (*epoch)++;
    arrive(tid, *epoch);
    const bool last = phase + 1 == job.phases;
    if (!last || tid == 0) phase_.wait_while(before, spin_ns_);
  }
}

void ThreadTeam::arrive(int tid, uint32_t epoch) noexcept {
  // Whoever brings a counter to zero resets it before the release of phase_; the next arrivals come
  // after that release.
  Countdown& group = groups_[static_cast<size_t>(tid / kGroupThreads)];
  if (group.left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  group.left.store(group.full, std::memory_order_relaxed);
  if (root_.full > 1) {
    if (root_.left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    root_.left.store(root_.full, std::memory_order_relaxed);
  }
  phase_.set(epoch);
}

void ThreadTeam::run(int phases, ThreadPool::PhaseFn fn, void* ctx) noexcept {
  if (phases <= 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!started_ && !start_locked().ok()) {
    for (int phase = 0; phase < phases; ++phase) {
      for (int tid = 0; tid < options_.threads; ++tid) fn(ctx, phase, tid, options_.threads);
    }
    return;
  }
  job_ = {phases, fn, ctx};
  start_.set(++run_);
  work(0, &epoch_);
}

}  // namespace quern::inline v0
