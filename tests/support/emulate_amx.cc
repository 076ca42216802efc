#include "tests/support/emulate_amx.h"

#include "tests/support/amx_cpu.h"
#include "tests/support/amx_trap.h"

namespace quern::amx_emu {

Emulation emulate_amx_in_this_process() {
  if (native_amx()) return {true, ""};
  static const Scope scope;
  if (!scope.installed()) return {false, scope.reason()};
  static const EmulatedCpu cpu(jit::system_cpu());
  jit::set_process_cpu(&cpu);
  return {};
}

}  // namespace quern::amx_emu
