#pragma once

namespace quern::smoke {

/// --emulate-amx: from here on contexts see a CPU with AMX. Before the first context and the first
/// thread. Throws InputError where this build has no emulator (QUERN_TOOLS_EMULATOR) or it cannot
/// start. On a CPU that has AMX kernels run natively, and a line on stderr says so.
void emulate_amx();

}  // namespace quern::smoke
