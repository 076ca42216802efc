#include "jit/gdb_jit.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "jit/gdb_object.h"
#include "jit/per_process.h"

namespace quern::jit {

// The layout and the two names below are the interface ("JIT Compilation Interface" in GDB's
// manual); the names of the types and members are ours.
struct DebugEntry {
  DebugEntry* next;
  DebugEntry* previous;
  const char* object;
  uint64_t object_bytes;
};
enum DebugAction : uint32_t { kNoAction = 0, kRegister = 1, kUnregister = 2 };
struct DebugDescriptor {
  uint32_t version;
  uint32_t action;
  DebugEntry* relevant;
  DebugEntry* first;
};

}  // namespace quern::jit

extern "C" {

// Weak and exported: a process has one list, whichever of its JITs brought it. LLVM defines the
// same two, strongly.
__attribute__((weak, visibility("default"), used))
quern::jit::DebugDescriptor __jit_debug_descriptor = {1, quern::jit::kNoAction, nullptr, nullptr};

// A debugger has a breakpoint here. The empty statement keeps the calls: without it a compiler may
// see that the function does nothing.
__attribute__((weak, visibility("default"), noinline, used)) void __jit_debug_register_code() {
  __asm__ volatile("" : : : "memory");
}

}  // extern "C"

namespace quern::jit {
namespace {

struct ListLock {
  ListLock(pid_t process, ListLock* parent) : pid(process), inherited(parent) {}
  const pid_t pid;
  ListLock* const inherited;
  std::mutex mutex;
};

/// Never destroyed: a kernel in a static object may be unregistered after everything else.
union EternalLock {
  constexpr EternalLock() : lock() {}
  ~EternalLock() {}
  PerProcess<ListLock> lock;
};

// The list belongs to the process and not to a context, and so does its lock. It keeps our own
// threads apart; the interface knows no lock that another JIT of the process would take as well.
constinit EternalLock list_lock;

std::mutex& list_mutex() {
  return list_lock.lock.get().mutex;
}

void tell_debugger(DebugEntry* entry, DebugAction action) {
  __jit_debug_descriptor.relevant = entry;
  __jit_debug_descriptor.action = action;
  __jit_debug_register_code();
  __jit_debug_descriptor.action = kNoAction;
  __jit_debug_descriptor.relevant = nullptr;
}

/// A kernel in the debugger's list, from construction to destruction.
class Registration {
 public:
  explicit Registration(std::string object) : object_(std::move(object)) {
    entry_.object = object_.data();
    entry_.object_bytes = object_.size();
    const std::lock_guard<std::mutex> lock(list_mutex());
    entry_.next = __jit_debug_descriptor.first;
    if (entry_.next != nullptr) entry_.next->previous = &entry_;
    __jit_debug_descriptor.first = &entry_;
    tell_debugger(&entry_, kRegister);
  }
  ~Registration() {
    const std::lock_guard<std::mutex> lock(list_mutex());
    if (entry_.next != nullptr) entry_.next->previous = entry_.previous;
    if (entry_.previous != nullptr) {
      entry_.previous->next = entry_.next;
    } else {
      __jit_debug_descriptor.first = entry_.next;
    }
    tell_debugger(&entry_, kUnregister);
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

 private:
  std::string object_;
  DebugEntry entry_{};
};

}  // namespace

KernelRecord GdbListener::published(const GeneratedCode& code, const Kernel& kernel) {
  return std::make_shared<const Registration>(gdb_object(code, kernel.entry));
}

}  // namespace quern::jit
