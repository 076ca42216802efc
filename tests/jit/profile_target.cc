// A program for debuggers and profilers to look at: makes a kernel with the listeners that the
// command line names, and calls it.
//   quern_profile_target trap|spin LISTENER=perf|jitdump|gdb|none [DIRECTORY of the jitdump]
#include <cstdio>
#include <cstring>
#include <string>

#include "jit/code_memory.h"
#include "jit/code_registry.h"
#include "jit/kernel_cache.h"
#include "tests/jit/busy_kernel.h"

namespace quern::jit {

// Frames for a backtrace to find; the empty statement keeps the calls from becoming jumps.
__attribute__((noinline)) void innermost_caller(const Kernel& kernel, int64_t rounds) {
  kernel.call(BusyArgs{rounds});
  __asm__ volatile("" : : : "memory");
}

__attribute__((noinline)) void outer_caller(const Kernel& kernel, int64_t rounds) {
  innermost_caller(kernel, rounds);
  __asm__ volatile("" : : : "memory");
}

}  // namespace quern::jit

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const bool trap = std::strcmp(argv[1], "trap") == 0;
  const std::string listener = argv[2];
  quern::jit::CodeRegistryOptions options;
  options.perf_map = listener == "perf";
  options.gdb = listener == "gdb";
  if (listener == "jitdump") options.jitdump_dir = argc > 3 ? argv[3] : ".";
  bool failed = false;
  options.on_error = [&failed](const std::string& line) {
    std::fprintf(stderr, "%s\n", line.c_str());
    failed = true;
  };
  quern::jit::CodeRegistry registry(options);
  quern::jit::KernelCache cache(quern::jit::CodeMemory(), &registry);
  const auto kernel =
      cache.get(quern::jit::BusyKernel::name(), [trap] { return quern::jit::generate_busy(trap); });
  if (!kernel.ok() || failed) return 1;
  quern::jit::outer_caller(**kernel, trap ? 1 : 1500000000);
  std::puts("done");
  return 0;
}
