#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "jit/isa.h"
#include "quern/context.h"
#include "quern/tuning.h"

namespace quern::test {

/// One ISA level that the op tests are run for, or the reason why they are not.
struct TestIsa {
  std::string name;  ///< part of the test's name: "avx512_native"
  IsaLevel level = IsaLevel::kNone;
  std::string skip_reason;  ///< empty: run
};

/// Every level there is, always: a level that cannot be tested here is skipped by name. AMX is
/// "amx_native" where the CPU has it and "amx_emulated" elsewhere.
std::vector<TestIsa> isas_to_test();

/// The CPU that context_at() makes its contexts for: this one, with AMX added where the level is
/// emulated. The first call for an emulated level starts the emulation, which lasts until the
/// process ends.
const jit::CpuSource& cpu_at(const TestIsa& isa);

/// A context capped at the level, with the given pool and a kernel cache of its own.
Context context_at(const TestIsa& isa, ThreadPool* pool = nullptr,
                   const TuningSource* tuning = nullptr);

/// Serial, made once a process and level: a kernel is generated once however many cases use it.
inline const Context& shared_context(const TestIsa& isa) {
  if (isa.level == IsaLevel::kAmx) {
    static const Context amx = context_at(isa);
    return amx;
  }
  static const Context avx512 = context_at(isa);
  return avx512;
}

inline std::string isa_name(const ::testing::TestParamInfo<TestIsa>& info) {
  return info.param.name;
}
inline void PrintTo(const TestIsa& isa, std::ostream* out) {
  *out << isa.name;
}

/// Base of tests that run once per level.
class IsaTest : public ::testing::TestWithParam<TestIsa> {
 protected:
  void SetUp() override {
    if (!GetParam().skip_reason.empty()) GTEST_SKIP() << GetParam().skip_reason;
  }
  const Context& ctx() const { return shared_context(GetParam()); }
};

}  // namespace quern::test
