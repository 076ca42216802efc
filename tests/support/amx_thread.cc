#include "tests/support/amx_thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <atomic>
#include <new>

#include "tests/support/amx_text.h"

namespace quern::amx_emu {
namespace {

// Initial-exec: the handler reads it without __tls_get_addr, which may allocate.
constinit thread_local __attribute__((tls_model("initial-exec"))) ThreadState* t_state = nullptr;

// States are never unmapped; those of threads that have ended are taken by new ones and keep what
// they counted in g_ended.
constinit std::atomic<ThreadState*> g_states{nullptr};
constinit Counters g_ended;

constinit pthread_once_t g_key_once = PTHREAD_ONCE_INIT;
constinit pthread_key_t g_key = 0;
constinit ThreadEndHook g_hook = nullptr;

uint64_t load(const uint64_t& field) {
  // atomic_ref takes no const in C++20.
  return std::atomic_ref(const_cast<uint64_t&>(field)).load(std::memory_order_relaxed);
}
/// A field has one writer.
void bump(uint64_t& field, uint64_t n) {
  std::atomic_ref(field).store(load(field) + n, std::memory_order_relaxed);
}

Counters snapshot(const Counters& from) {
  Counters c;
  for (int i = 0; i < kOps; ++i) c.ops[i] = load(from.ops[i]);
  for (int i = 0; i < kCounts; ++i) c.counts[i] = load(from.counts[i]);
  return c;
}

void move_to_ended(Counters& from) {
  const auto move = [](uint64_t& f, uint64_t& to) {
    std::atomic_ref(to).fetch_add(std::atomic_ref(f).exchange(0, std::memory_order_relaxed),
                                  std::memory_order_relaxed);
  };
  for (int i = 0; i < kOps; ++i) move(from.ops[i], g_ended.ops[i]);
  for (int i = 0; i < kCounts; ++i) move(from.counts[i], g_ended.counts[i]);
}

void end_thread(void* pointer) {
  auto& state = *static_cast<ThreadState*>(pointer);
  if (state.tiles.configured()) {
    count(state, Count::kLeaks, 1);
    if (g_hook) g_hook(state);
  }
  release(state.tiles);
  move_to_ended(state.counters);
  t_state = nullptr;
  std::atomic_ref(state.in_use).store(false, std::memory_order_release);
}

/// One that an ended thread left, else a new one.
ThreadState* take_state() {
  for (ThreadState* s = g_states.load(std::memory_order_acquire); s; s = s->next) {
    bool free = false;
    if (std::atomic_ref(s->in_use).compare_exchange_strong(free, true)) return s;
  }
  void* memory = mmap(nullptr, sizeof(ThreadState), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    Text().add("amx emulator: no memory for a thread's tiles\n").print();
    abort();
  }
  auto* state = new (memory) ThreadState();
  state->in_use = true;
  state->next = g_states.load(std::memory_order_relaxed);
  while (!g_states.compare_exchange_weak(state->next, state, std::memory_order_release)) {
  }
  return state;
}

}  // namespace

void prepare_threads(ThreadEndHook hook) {
  g_hook = hook;
  pthread_once(&g_key_once, [] {
    if (pthread_key_create(&g_key, end_thread) == 0) return;
    Text().add("amx emulator: no thread-specific key left\n").print();
    abort();
  });
}

ThreadState& this_thread() {
  if (t_state == nullptr) {
    t_state = take_state();
    pthread_setspecific(g_key, t_state);
  }
  return *t_state;
}

ThreadState* this_thread_if_any() {
  return t_state;
}

void count(ThreadState& thread, Op op) {
  bump(thread.counters.ops[static_cast<int>(op)], 1);
}
void count(ThreadState& thread, Count what, uint64_t n) {
  bump(thread.counters.counts[static_cast<int>(what)], n);
}

Counters read(const ThreadState& thread) {
  return snapshot(thread.counters);
}

Counters read_all() {
  Counters sum = snapshot(g_ended);
  for (ThreadState* s = g_states.load(std::memory_order_acquire); s; s = s->next) {
    sum += snapshot(s->counters);
  }
  return sum;
}

}  // namespace quern::amx_emu
