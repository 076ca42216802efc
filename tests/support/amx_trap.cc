#include "tests/support/amx_trap.h"

#include <cpuid.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "tests/support/amx_decode.h"
#include "tests/support/amx_execute.h"
#include "tests/support/amx_text.h"
#include "tests/support/amx_thread.h"

namespace quern::amx_emu {
namespace {

// Scopes come and go under the mutex. The handler reads only what was written before it was
// installed, and the two atomics.
constinit std::mutex g_mutex;
constinit std::atomic<int> g_scopes{0};
constinit std::atomic<bool> g_permission{false};
constinit Options g_options;
constinit struct sigaction g_previous = {};
constinit bool g_displaced = false;  // a foreign handler sat on ours when the last scope ended

constexpr size_t kLongestInstruction = 15;

void handle_sigill(int signal, siginfo_t* info, void* context);

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == handle_sigill;
}

void set_default(int signal) {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
}

/// Hands the signal to whoever had it before us.
void chain(int signal, siginfo_t* info, void* context) {
  const bool sent = info->si_code <= 0;  // by kill() and the like, not by an instruction
  if ((g_previous.sa_flags & SA_SIGINFO) != 0) {
    g_previous.sa_sigaction(signal, info, context);
  } else if (g_previous.sa_handler == SIG_IGN && sent) {
    return;
  } else if (g_previous.sa_handler == SIG_DFL || g_previous.sa_handler == SIG_IGN) {
    // An instruction runs again when we return and ends the process at its true address (also
    // with SIG_IGN, which the kernel does not accept for it). A signal that was sent is sent again.
    set_default(signal);
    if (sent) raise(signal);
  } else {
    g_previous.sa_handler(signal);
  }
}

/// #GP: a SIGSEGV of the kernel's kind, delivered when the handler returns to `rip`.
void send_general_protection(ucontext_t* context) {
  struct sigaction now = {};
  sigaction(SIGSEGV, nullptr, &now);
  const bool ignored = (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_IGN;
  if (ignored || sigismember(&context->uc_sigmask, SIGSEGV) == 1) {
    set_default(SIGSEGV);  // as the kernel does where a fault cannot be delivered
    sigdelset(&context->uc_sigmask, SIGSEGV);
  }
  // Blocked until the handler returns, which puts the old mask back: only then is it delivered.
  sigset_t segv;
  sigemptyset(&segv);
  sigaddset(&segv, SIGSEGV);
  pthread_sigmask(SIG_BLOCK, &segv, nullptr);
  siginfo_t info = {};
  info.si_signo = SIGSEGV;
  info.si_code = SI_KERNEL;
  syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), SIGSEGV, &info);
}

[[noreturn]] void abort_with(const Text& text) {
  text.print();
  abort();
}

Gprs read_gprs(const mcontext_t& machine) {
  constexpr int kOrder[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                              REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                              REG_R12, REG_R13, REG_R14, REG_R15};
  Gprs gprs;
  for (int i = 0; i < 16; ++i) gprs.r[i] = static_cast<uint64_t>(machine.gregs[kOrder[i]]);
  gprs.rip = static_cast<uint64_t>(machine.gregs[REG_RIP]);
  return gprs;
}

const char* strict_objection(const TileState& tiles, const Instruction& i) {
  if ((tiles_read(i) & ~tiles.written) != 0) {
    return "strict: reads a tile that nothing wrote since ldtilecfg";
  }
  if ((is_load(i.op) || i.op == Op::kTilestored) && i.stride == 0) {
    const int tile = is_load(i.op) ? i.dst : i.src1;
    if (tiles.rows[tile] > 1) return "strict: several rows with stride 0";
  }
  return nullptr;
}

/// Everything that can be held against the instruction before it is executed. The architecture's
/// rules come first: a fault is reported by what causes it on the machine.
Fault objection(const TileState& tiles, const Instruction& i) {
  if (g_options.require_permission && uses_tile_data(i.op) && !permission_noted()) {
    return {FaultKind::kUndefined, "#NM: tile data without the kernel's permission"};
  }
  if (Fault f = check(tiles, i)) return f;
  if (!g_options.strict) return {};
  if (const char* rule = strict_objection(tiles, i)) return {FaultKind::kUndefined, rule};
  return {};
}

/// Executes and counts, or returns why not.
Fault step(ThreadState& thread, const Instruction& i) {
  if (Fault f = objection(thread.tiles, i)) return f;
  const Work work = work_of(thread.tiles, i);
  if (Fault f = execute(thread.tiles, i)) return f;
  count(thread, i.op);
  count(thread, Count::kBytesLoaded, work.bytes_loaded);
  count(thread, Count::kBytesStored, work.bytes_stored);
  count(thread, Count::kMacsIssued, work.macs_issued);
  count(thread, Count::kMacsUseful, work.macs_useful);
  return {};
}

void deliver(const Fault& fault, const Decoded& decoded, int signal, siginfo_t* info,
             ucontext_t* context) {
  const auto rip = static_cast<uint64_t>(context->uc_mcontext.gregs[REG_RIP]);
  if (g_options.on_fault == OnFault::kAbort) {
    Text text;
    text.add("amx emulator: ");
    if (decoded.kind == DecodeKind::kInstruction) {
      text.add(decoded.instruction);
    } else {
      text.add("an instruction");
    }
    text.add(" at rip ").add_hex(rip).add(": ");
    if (fault.kind == FaultKind::kProtection) text.add("#GP: ");
    abort_with(text.add(fault.rule).add("\n"));
  }
  if (fault.kind == FaultKind::kProtection) {
    send_general_protection(context);
    return;
  }
  info->si_addr = reinterpret_cast<void*>(rip);
  chain(signal, info, context);
}

void emulate(int signal, siginfo_t* info, ucontext_t* context) {
  auto& rip = context->uc_mcontext.gregs[REG_RIP];
  Gprs gprs = read_gprs(context->uc_mcontext);  // AMX instructions change none but rip
  ThreadState* thread = nullptr;
  do {
    const auto* code = reinterpret_cast<const uint8_t*>(gprs.rip);
    const Decoded decoded = decode(code, kLongestInstruction, gprs);
    if (decoded.kind == DecodeKind::kNotAmx) {
      if (!thread) chain(signal, info, context);
      return;  // else: native code from here on
    }
    if (!thread) {
      thread = &this_thread();
      count(*thread, Count::kTraps, 1);
    }
    // In the frame before each step: a fault inside an access then shows the tile instruction in
    // the frame below the handler.
    rip = static_cast<greg_t>(gprs.rip);
    Fault fault{FaultKind::kUndefined, decoded.rule};
    if (decoded.kind == DecodeKind::kInstruction) fault = step(*thread, decoded.instruction);
    if (fault) {
      count(*thread, Count::kFaults, 1);
      deliver(fault, decoded, signal, info, context);
      return;
    }
    gprs.rip += decoded.instruction.length;
    rip = static_cast<greg_t>(gprs.rip);
  } while (g_options.batch);
}

void handle_sigill(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  if (info->si_code <= 0 || g_scopes.load(std::memory_order_acquire) == 0) {
    chain(signal, info, context);
  } else {
    emulate(signal, info, static_cast<ucontext_t*>(context));
  }
  errno = saved_errno;
}

void on_thread_end(const ThreadState&) {
  if (!active() || !g_options.strict || g_options.on_fault != OnFault::kAbort) return;
  abort_with(Text().add("amx emulator: strict: a thread ended with its tiles configured\n"));
}

bool this_thread_blocks_sigill() {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  return sigismember(&blocked, SIGILL) == 1;
}

/// Why a scope cannot be installed; under the mutex.
std::string objection_to_scope(const Options& options) {
  if (native_amx() && !options.even_if_native) {
    return "this CPU has AMX: its instructions run natively and never trap";
  }
  if (this_thread_blocks_sigill()) {
    return "this thread blocks SIGILL: the first tile instruction would kill the process";
  }
  if (g_scopes != 0) {
    return options == g_options ? "" : "another Scope is in force, with other options";
  }
  if (g_displaced && !handler_in_place()) {
    return "a SIGILL handler that was installed over the emulator's is still there";
  }
  return "";
}

void install(const Options& options) {
  prepare_threads(on_thread_end);
  g_options = options;
  if (g_displaced) {  // still installed, and on top again
    g_displaced = false;
    return;
  }
  struct sigaction action = {};
  action.sa_sigaction = handle_sigill;
  // On the alternate stack where the thread has one: generated code may use rsp as it likes.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGILL, &action, &g_previous);
}

void uninstall() {
  if (handler_in_place()) {
    sigaction(SIGILL, &g_previous, nullptr);
  } else {
    g_displaced = true;  // it may chain to ours, which without a scope only passes on
  }
}

}  // namespace

Scope::Scope(const Options& options) {
  const std::lock_guard lock(g_mutex);
  reason_ = objection_to_scope(options);
  installed_ = reason_.empty();
  if (!installed_) return;
  if (g_scopes == 0) install(options);
  g_scopes.fetch_add(1, std::memory_order_release);
}

Scope::~Scope() {
  if (!installed_) return;
  const std::lock_guard lock(g_mutex);
  if (g_scopes.fetch_sub(1, std::memory_order_release) == 1) uninstall();
}

// Not inlined: tests/project/isa_flags_test.sh knows by its name where XGETBV may be.
__attribute__((noinline)) bool native_amx() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || ((d >> 24) & 1) == 0) return false;
  if (!__get_cpuid(1, &a, &b, &c, &d) || ((c >> 27) & 1) == 0) return false;
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & 0x60000u) == 0x60000u;
}

bool active() {
  return g_scopes.load(std::memory_order_acquire) != 0;
}

bool handler_in_place() {
  struct sigaction now = {};
  sigaction(SIGILL, nullptr, &now);
  return is_ours(now);
}

std::string threads_blocking_sigill() {
  std::string list;
  DIR* tasks = opendir("/proc/self/task");
  if (!tasks) return list;
  while (const dirent* task = readdir(tasks)) {
    if (task->d_name[0] == '.') continue;
    const std::string path = std::string("/proc/self/task/") + task->d_name + "/status";
    FILE* status = std::fopen(path.c_str(), "r");
    if (!status) continue;  // it has ended
    char line[256], name[64] = "?";
    unsigned long long blocked = 0;
    while (std::fgets(line, sizeof line, status)) {
      std::sscanf(line, "Name: %63[^\n]", name);
      std::sscanf(line, "SigBlk: %llx", &blocked);
    }
    std::fclose(status);
    if (((blocked >> (SIGILL - 1)) & 1) == 0) continue;
    if (!list.empty()) list += ", ";
    list += std::string(task->d_name) + " (" + name + ")";
  }
  closedir(tasks);
  return list;
}

Counters thread_counters() {
  const ThreadState* state = this_thread_if_any();
  return state ? read(*state) : Counters{};
}

Counters total_counters() {
  return read_all();
}

TileState thread_tiles() {
  const ThreadState* state = this_thread_if_any();
  return state ? state->tiles : TileState{};
}

std::string expect_released() {
  const ThreadState* state = this_thread_if_any();
  if (!state || !state->tiles.configured()) return "";
  std::string text = "tiles are still configured:";
  for (int t = 0; t < kTiles; ++t) {
    text +=
        " " + std::to_string(state->tiles.rows[t]) + "x" + std::to_string(state->tiles.colsb[t]);
  }
  return text;
}

void reset_thread() {
  if (ThreadState* state = this_thread_if_any()) release(state->tiles);
}

void note_permission(bool granted) {
  g_permission.store(granted, std::memory_order_relaxed);
}
bool permission_noted() {
  return g_permission.load(std::memory_order_relaxed);
}

}  // namespace quern::amx_emu
