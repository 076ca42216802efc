#pragma once

#include <cstdint>

#include "tests/support/amx_decode.h"
#include "tests/support/amx_tiles.h"

namespace quern::amx_emu {

enum class FaultKind : uint8_t {
  kNone,
  kUndefined,   ///< #UD, which Linux turns into SIGILL
  kProtection,  ///< #GP(0), which Linux turns into SIGSEGV
};

struct Fault {
  FaultKind kind = FaultKind::kNone;
  const char* rule = nullptr;  ///< static text that names the rule
  explicit operator bool() const { return kind != FaultKind::kNone; }
};

/// Which implementation of the dot products; they give the same bits (amx_dot.h).
enum class DotPath : uint8_t {
  kFastest,   ///< AVX2 where the CPU has it
  kPortable,  ///< runs on every x86-64
  kAvx2,      ///< only where has_avx2()
};

/// Executes one decoded instruction on the state and on memory, by the rules of the architecture
/// (shared/amx-emulation.md section 2). On a fault nothing has changed, neither state nor memory.
///
/// Memory is accessed row by row where the instruction says; bad addresses fault with the state as
/// hardware leaves it: rows before the faulting one are done, start_row names it. The same
/// instruction executed again goes on from there.
///
/// Reads and writes no globals, MXCSR is as before afterwards: safe in signal handlers and from
/// any number of threads on different states.
Fault execute(TileState& state, const Instruction& instruction, DotPath path = DotPath::kFastest);

/// The checks of execute() alone, without those of LDTILECFG's memory operand.
Fault check(const TileState& state, const Instruction& instruction);

/// What an instruction does, for counters: taken before it is executed, since loads and stores
/// count from start_row. Zero for an instruction that faults.
struct Work {
  uint32_t bytes_loaded = 0;  ///< of tile data; the configuration does not count
  uint32_t bytes_stored = 0;
  uint32_t macs_issued = 0;  ///< multiplications of a full 16 x 16 tile and 64-byte rows
  uint32_t macs_useful = 0;  ///< those that the configured sizes ask for
};
Work work_of(const TileState& state, const Instruction& instruction);

/// Bit t: the instruction reads the old contents of tile t.
uint8_t tiles_read(const Instruction& instruction);

}  // namespace quern::amx_emu
