#include "tests/support/isa_list.h"

#include <utility>

#include "ops/context_impl.h"
#include "tests/support/amx_cpu.h"
#include "tests/support/amx_trap.h"

namespace quern::test {
namespace {

/// Why the machine does not reach the level; empty where it does.
std::string missing(IsaLevel level) {
  const Context probe;
  if (probe.isa() >= level) return "";
  std::string reason = "this machine has no usable " + std::string(to_string(level)) + " level:";
  for (const IsaStage& stage : probe.isa_report().stages) {
    if (!stage.passed) reason += " [" + stage.name + "] " + stage.detail;
  }
  return reason;
}

const jit::CpuSource& emulated_cpu() {
  static const amx_emu::Scope scope;
  EXPECT_TRUE(scope.installed()) << scope.reason();
  static const amx_emu::EmulatedCpu cpu(jit::system_cpu());
  return cpu;
}

}  // namespace

std::vector<TestIsa> isas_to_test() {
  const std::string no_avx512 = missing(IsaLevel::kAvx512);
  TestIsa amx{"amx_native", IsaLevel::kAmx, ""};
  if (amx_emu::native_amx()) {
    amx.skip_reason = missing(IsaLevel::kAmx);
  } else {
    // The emulator has tiles; the rest of an AMX kernel is AVX-512.
    amx = {"amx_emulated", IsaLevel::kAmx, no_avx512};
  }
  return {{"avx512_native", IsaLevel::kAvx512, no_avx512}, amx};
}

const jit::CpuSource& cpu_at(const TestIsa& isa) {
  const bool emulate = isa.level == IsaLevel::kAmx && !amx_emu::native_amx();
  return emulate ? emulated_cpu() : jit::system_cpu();
}

Context context_at(const TestIsa& isa, ThreadPool* pool, const TuningSource* tuning) {
  ContextOptions options;
  options.max_isa = isa.level;
  options.pool = pool;
  options.tuning = tuning;
  Result<Context> made = make_context(options, cpu_at(isa), jit::system_memory());
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(made).value() : Context();
}

}  // namespace quern::test
