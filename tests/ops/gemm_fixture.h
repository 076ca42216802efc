#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <tuple>

#include "tests/ops/gemm_case.h"
#include "tests/support/isa_list.h"

namespace quern::test {

inline void PrintTo(const GemmKind& kind, std::ostream* out) {
  *out << kind.name;
}

/// Base of what is said about every GEMM: one run per ISA level and kind. A level that cannot run
/// here is skipped with its reason.
class GemmTest : public ::testing::TestWithParam<std::tuple<TestIsa, GemmKind>> {
 protected:
  void SetUp() override {
    if (!isa().skip_reason.empty()) GTEST_SKIP() << isa().skip_reason;
  }
  const TestIsa& isa() const { return std::get<0>(GetParam()); }
  const GemmKind& kind() const { return std::get<1>(GetParam()); }
  bool is_fp8() const { return std::string(kind().op) == "fp8_gemm"; }
  bool is_int4() const { return std::string(kind().op) == "int4_gemm"; }
  bool is_fp4() const { return std::string(kind().op) == "fp4_gemm"; }
  /// As GemmCase::has_plain_weights().
  bool has_plain_weights() const { return !is_int4() && !is_fp4(); }
  const Context& ctx() const { return shared_context(isa()); }
};

inline std::string gemm_test_name(const ::testing::TestParamInfo<GemmTest::ParamType>& info) {
  return std::get<0>(info.param).name + "_" + std::get<1>(info.param).name;
}

inline auto every_gemm() {
  return ::testing::Combine(::testing::ValuesIn(isas_to_test()),
                            ::testing::ValuesIn(all_gemm_kinds()));
}

}  // namespace quern::test
