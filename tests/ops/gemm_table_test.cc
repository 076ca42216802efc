// Tables: every small shape with every depth at which something changes, and the named shapes.
#include "tests/ops/gemm_fixture.h"
#include "tests/support/problem_cases.h"

namespace quern::test {
namespace {

using GemmTableTest = GemmTest;

TEST_P(GemmTableTest, DenseTails) {
  uint64_t variant = 0;
  for (const int64_t k : kTailDepths) {
    for (int64_t m = 1; m <= 17; ++m) {
      for (int64_t n = 1; n <= 17; ++n) {
        GemmCase c = make_case(kind(), m, n, k);
        vary(c, ++variant);
        ASSERT_TRUE(check_case(ctx(), c));
      }
    }
  }
}

TEST_P(GemmTableTest, NamedShapes) {
  for (const ProblemCase& row : problem_cases()) {
    SCOPED_TRACE(std::string(row.name) + ": " + row.why);
    GemmCase c = make_case(kind(), row.problem);
    // Once plain, in both types of C; once with everything that the seed picks.
    for (const DType type : {DType::kBF16, DType::kF32}) {
      c.problem.c = type;
      EXPECT_TRUE(check_case(ctx(), c));
    }
    vary(c, static_cast<uint64_t>(row.problem[2]) + 7);
    EXPECT_TRUE(check_case(ctx(), c));
  }
}

TEST_P(GemmTableTest, EveryEpilogue) {
  for (int bits = 0; bits < 16; ++bits) {
    for (const bool in_place : {false, true}) {
      for (const Fill fill : {Fill::kExact, Fill::kRandom, Fill::kExtreme}) {
        GemmCase c = make_case(kind(), 9, 71, 133);
        c.problem.epilogue.bias = bits & 1;
        c.problem.epilogue.residual = bits & 2;
        c.problem.epilogue.activation = bits & 4 ? Activation::kSiluMul : Activation::kNone;
        c.problem.c = bits & 8 ? DType::kF32 : DType::kBF16;
        c.residual_is_c = in_place && (bits & 2);
        c.fill = fill;
        c.a_pad = 5;
        c.c_pad = 3;
        c.residual_pad = 7;
        EXPECT_TRUE(check_case(ctx(), c));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, GemmTableTest, every_gemm(), gemm_test_name);

}  // namespace
}  // namespace quern::test
