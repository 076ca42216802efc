#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "quern/quantize_rows.h"
#include "tests/ops/case_values.h"
#include "tests/support/test_matrix.h"

namespace quern::test {

struct QuantizeCase : CaseValues {
  int64_t m = 1;
  int64_t k = 1;
  int64_t group = 0;
  DType a = DType::kBF16;
  bool sums = true;
  int64_t a_pad = 0;
  int64_t q_pad = 0;
  int64_t sums_pad = 0;

  int64_t groups() const { return group > 0 && k > 0 ? (k + group - 1) / group : 1; }
};

QuantizeCase random_quantize_case(uint64_t seed);
void vary(QuantizeCase& c, uint64_t variant);
std::string to_string(const QuantizeCase& c);

struct QuantizeData {
  explicit QuantizeData(const QuantizeCase& c);
  QuantizeRowsArgs args(const QuantizeCase& c);

  TestMatrix a, q, scale, sums;
};

Result<QuantizeRows> make_quantize(const Context& ctx, const QuantizeCase& c);
/// q, scale and sums have the reference's bits, and nothing around them was written.
::testing::AssertionResult matches_reference(const QuantizeCase& c, QuantizeData& data);
::testing::AssertionResult check_case(const Context& ctx, const QuantizeCase& c);

}  // namespace quern::test
