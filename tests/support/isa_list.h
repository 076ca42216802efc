#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "quern/context.h"
#include "quern/tuning.h"

namespace quern::test {

/// One ISA level that the op tests are run for, or the reason why they are not.
struct TestIsa {
  std::string name;  ///< part of the test's name: "avx512_native"
  IsaLevel level = IsaLevel::kNone;
  std::string skip_reason;  ///< empty: run
};

/// Every level there is, always: a level that cannot be tested here is skipped by name.
inline std::vector<TestIsa> isas_to_test() {
  TestIsa avx512{"avx512_native", IsaLevel::kAvx512, ""};
  const Context probe;
  if (probe.isa() < IsaLevel::kAvx512) {
    avx512.skip_reason = "this machine has no avx512 level:";
    for (const IsaStage& stage : probe.isa_report().stages) {
      if (!stage.passed) avx512.skip_reason += " [" + stage.name + "] " + stage.detail;
    }
  }
  return {avx512, TestIsa{"amx", IsaLevel::kAmx,
                          "amx kernels and their emulation come with a later issue"}};
}

/// A context capped at the level, with the given pool and a kernel cache of its own.
inline Context context_at(const TestIsa& isa, ThreadPool* pool = nullptr,
                          const TuningSource* tuning = nullptr) {
  ContextOptions options;
  options.max_isa = isa.level;
  options.pool = pool;
  options.tuning = tuning;
  Result<Context> made = Context::create(options);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(made).value() : Context();
}

/// Serial, made once a process and level: a kernel is generated once however many cases use it.
inline const Context& shared_context(const TestIsa& isa) {
  static const Context avx512 = context_at({"", IsaLevel::kAvx512, ""});
  static const Context amx = context_at({"", IsaLevel::kAmx, ""});
  return isa.level == IsaLevel::kAmx ? amx : avx512;
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
