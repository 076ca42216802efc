#pragma once

#include <cstdint>
#include <string>

#include "tests/support/amx_counters.h"
#include "tests/support/amx_tiles.h"

namespace quern::amx_emu {

enum class OnFault : uint8_t {
  /// Prints the instruction, its address and the rule that it breaks, and aborts.
  kAbort,
  /// As the machine: #UD goes to the previous SIGILL handler, #GP becomes SIGSEGV, with RIP at the
  /// faulting instruction. What strict mode objects to counts as #UD.
  kChain,
};

struct Options {
  /// Checks beyond hardware: a tile is read that nothing wrote since LDTILECFG; a load or store of
  /// several rows with stride 0; a thread ends with tiles configured.
  bool strict = true;
  /// Executes the AMX instructions that follow in the same trap: several times faster.
  bool batch = true;
  /// Refuses tile data until note_permission(true), as Linux does before ARCH_REQ_XCOMP_PERM.
  bool require_permission = false;
  OnFault on_fault = OnFault::kAbort;
  /// Be installed also where the CPU has AMX: instructions then run natively and never trap.
  bool even_if_native = false;

  bool operator==(const Options&) const = default;
};

/// While one exists, AMX instructions of any thread run on software tiles, each thread on its own.
///
/// Scopes nest and may overlap between threads: the first installs the SIGILL handler, the last
/// puts the previous one back. All have the same options. A scope that cannot do its work is not
/// installed and says why: the CPU has AMX; the calling thread blocks SIGILL (the kernel then kills
/// the process instead of calling a handler); other options are in force; a SIGILL handler that was
/// installed over ours is still there.
class Scope {
 public:
  explicit Scope(const Options& options = {});
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  bool installed() const { return installed_; }
  const std::string& reason() const { return reason_; }  ///< why not; empty when installed

 private:
  std::string reason_;
  bool installed_ = false;
};

/// AMX-TILE in CPUID and tile state in XCR0: instructions do not trap here.
bool native_amx();

/// A Scope is installed.
bool active();
/// SIGILL comes to us first. False while active: somebody installed a handler over ours, and
/// whether instructions are emulated depends on whether that one chains.
bool handler_in_place();
/// The threads of this process that block SIGILL, as "1234 (name), ..."; empty when none. A tile
/// instruction in one of them kills the process before any handler runs.
std::string threads_blocking_sigill();

/// Of the calling thread since it started, and of all threads since the process started (exact
/// while no other thread executes tile instructions). For one call: the difference of two readings.
Counters thread_counters();
Counters total_counters();

/// A copy of the calling thread's tiles.
TileState thread_tiles();
/// Empty, or that the calling thread's tiles are still configured, and how: for the end of a call
/// that must have executed TILERELEASE.
std::string expect_released();
/// Forgets the calling thread's configuration and data, as Linux does when a signal handler is left
/// by longjmp. (The emulator's tiles survive that, the machine's do not.)
void reset_thread();

/// What the kernel answered to the request for tile data. Like the permission, it belongs to the
/// process and stays when scopes end. amx_cpu.h calls this.
void note_permission(bool granted);
bool permission_noted();

}  // namespace quern::amx_emu
