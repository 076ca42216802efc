// A program with a JIT of another making in it, which defines GDB's two symbols strongly, as LLVM
// does. quern's are weak: the program links, and quern's kernels get into that one list.
#include <cstdint>
#include <cstdio>

#include "jit/code_memory.h"
#include "jit/code_registry.h"
#include "jit/kernel_cache.h"
#include "tests/jit/busy_kernel.h"

namespace {
int calls = 0;
}

extern "C" {

struct jit_descriptor {
  uint32_t version;
  uint32_t action_flag;
  void* relevant_entry;
  void* first_entry;
};
__attribute__((visibility("default")))
jit_descriptor __jit_debug_descriptor = {1, 0, nullptr, nullptr};
__attribute__((visibility("default"), noinline)) void __jit_debug_register_code() {
  ++calls;
}

}  // extern "C"

int main() {
  using namespace quern::jit;
  CodeRegistry registry({.gdb = true});
  bool listed = false;
  {
    KernelCache cache(CodeMemory(), &registry);
    const auto kernel = cache.get(BusyKernel::name(), [] { return generate_busy(false); });
    listed = kernel.ok() && __jit_debug_descriptor.first_entry != nullptr && calls == 1;
  }
  const bool gone = __jit_debug_descriptor.first_entry == nullptr && calls == 2;
  std::printf("listed: %d, gone: %d\n", listed, gone);
  return listed && gone ? 0 : 1;
}
