#pragma once

#include "jit/code_registry.h"

namespace quern::jit {

/// Tells GDB (and LLDB, untested) of each kernel through the JIT interface that both look for
/// (`__jit_debug_register_code`), for as long as the kernel's code exists: its name, its extent and
/// how to find its caller. jit/README.md says why the two symbols are weak and exported.
class GdbListener final : public CodeListener {
 public:
  KernelRecord published(const GeneratedCode& code, const Kernel& kernel) override;
};

}  // namespace quern::jit
