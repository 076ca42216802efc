#pragma once

#include <string>

namespace quern::amx_emu {

struct Emulation {
  bool native = false;  ///< the CPU has AMX: nothing was changed
  std::string refused;  ///< why not; empty: contexts have AMX from here on, one way or the other
};

/// From here on, contexts of this process see a CPU with AMX, and AMX instructions run on the
/// emulator where they trap: for the tools of the build tree (QUERN_TOOLS_EMULATOR), never for
/// anything that is installed. Before the first Context and the first thread.
Emulation emulate_amx_in_this_process();

}  // namespace quern::amx_emu
