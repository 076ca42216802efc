#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>

namespace quern::jit {

/// State that belongs to one process: a forked child gets a new one at its first use, without
/// touching the parent's, whose locks may be held by threads that do not exist in the child. The
/// parent's stays allocated in the child until the destructor (a child cannot know who was inside).
///
/// State is built as State{pid, inherited} and has both as members; `inherited` is the state of the
/// process that forked, null in the first. Two threads may build one at the same time and one of
/// them is thrown away, so building must not do anything: open files later, under State's own lock.
template <typename State>
class PerProcess {
 public:
  PerProcess() = default;
  ~PerProcess() {
    for (State* s = current_.load(std::memory_order_acquire); s != nullptr;) {
      const std::unique_ptr<State> gone(s);
      s = s->inherited;
    }
  }
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  State& get() {
    const pid_t pid = ::getpid();
    State* current = current_.load(std::memory_order_acquire);
    if (current != nullptr && current->pid == pid) return *current;
    auto fresh = std::make_unique<State>(pid, current);
    if (current_.compare_exchange_strong(current, fresh.get(), std::memory_order_acq_rel)) {
      return *fresh.release();
    }
    return *current;  // another thread of this process was faster
  }

 private:
  std::atomic<State*> current_{nullptr};
};

}  // namespace quern::jit
