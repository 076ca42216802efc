#pragma once

#include <string>

#include "jit/kernel.h"

namespace quern::jit {

/// An ELF file in memory that describes one kernel to a debugger: an executable section at the
/// kernel's address without contents, one function symbol with the kernel's name, and .debug_frame,
/// from which a backtrace finds the caller at every instruction.
std::string gdb_object(const GeneratedCode& code, const void* entry);

}  // namespace quern::jit
