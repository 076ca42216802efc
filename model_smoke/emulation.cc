#include "model_smoke/emulation.h"

#include "model_smoke/input_error.h"

#ifdef QUERN_TOOLS_EMULATOR
#include <cstdio>
#include <string>

#include "tests/support/emulate_amx.h"
#endif

namespace quern::smoke {

void emulate_amx() {
#ifdef QUERN_TOOLS_EMULATOR
  const amx_emu::Emulation emulation = amx_emu::emulate_amx_in_this_process();
  if (!emulation.refused.empty()) {
    throw InputError("--emulate-amx", "", "an emulator that can start", emulation.refused);
  }
  std::fputs(emulation.native ? "AMX: native, this CPU has it\n" : "AMX: emulated\n", stderr);
#else
  throw InputError("--emulate-amx", "", "a build with QUERN_TOOLS_EMULATOR", "one without");
#endif
}

}  // namespace quern::smoke
