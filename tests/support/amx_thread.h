#pragma once

#include <cstdint>

#include "tests/support/amx_counters.h"
#include "tests/support/amx_tiles.h"

namespace quern::amx_emu {

/// What the trap layer keeps for a thread: the software tiles, and counters that only that thread
/// writes and any thread may read. Memory comes from mmap: a signal handler makes it.
struct ThreadState {
  TileState tiles;
  Counters counters;  ///< through count() and read() only
  ThreadState* next = nullptr;
  bool in_use = false;  ///< through std::atomic_ref
};

/// Called when a thread that used tiles ends, with its last state. Set before the first use.
using ThreadEndHook = void (*)(const ThreadState& state);

/// Creates the key whose destructor sees threads end; once a process, not in a signal handler.
void prepare_threads(ThreadEndHook hook);

/// The calling thread's; made at its first use. Signal-safe: mmap, and pthread_setspecific with a
/// key that was made in time. Aborts where there is no memory.
ThreadState& this_thread();
/// The same, or null while the thread has none.
ThreadState* this_thread_if_any();

void count(ThreadState& thread, Op op);
void count(ThreadState& thread, Count what, uint64_t n);

Counters read(const ThreadState& thread);
/// Of all threads, also of those that have ended. Exact while no other thread is in the emulator.
Counters read_all();

}  // namespace quern::amx_emu
