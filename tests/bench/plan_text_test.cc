// What the benchmark reads out of explain(), from text by hand and from plans.
#include "bench/plan_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/op_case.h"
#include "jit/code_memory.h"
#include "ops/context_impl.h"
#include "tests/ops/mock_machine.h"

namespace quern::bench {
namespace {

const char* const kOneFamily =
    "int8_gemm/n:16/k:16\n"
    "  amx: refused: the tiles are being polished\n"
    "  avx512: chosen\n"
    "  kernel int8_gemm.avx512.x\n";

TEST(LevelOfKernel, IsInTheName) {
  EXPECT_EQ(level_of_kernel("int8_gemm.avx512.s8u8bf16.mr6"), IsaLevel::kAvx512);
  EXPECT_EQ(level_of_kernel("bf16_gemm.amx.bf16.mr32"), IsaLevel::kAmx);
  EXPECT_EQ(level_of_kernel("int8_gemm.avx512"), IsaLevel::kNone);
  EXPECT_EQ(level_of_kernel("amx"), IsaLevel::kNone);
}

TEST(WhyNot, QuotesTheRefusalOfTheLevel) {
  EXPECT_EQ(why_not(kOneFamily, IsaLevel::kAmx), "the tiles are being polished");
  EXPECT_EQ(why_not(kOneFamily, IsaLevel::kAvx512),
            "the plan has no kernel of that level for this problem");
}

TEST(KernelName, IsTheOneOfTheRowCount) {
  const std::string text =
      "int8_gemm/n:64/k:64\n"
      "  avx512: chosen\n"
      "  kernel quantize_rows.avx512.x\n"
      "  kernel int8_gemm.avx512.y.mr6.nr4.pf16.epi=none and its tails\n"
      "  kernel int8_gemm.avx512.y.mr6.nr4.pf0.epi=none and its tails\n"
      "  m 1..16: mr 6, kernel int8_gemm.avx512.y.mr6.nr4.pf16.epi=none (compiled-in defaults)\n"
      "  m 17..: mr 6, kernel int8_gemm.avx512.y.mr6.nr4.pf0.epi=none (compiled-in defaults)\n";
  EXPECT_EQ(kernel_name(text, 16), "int8_gemm.avx512.y.mr6.nr4.pf16.epi=none");
  EXPECT_EQ(kernel_name(text, 17), "int8_gemm.avx512.y.mr6.nr4.pf0.epi=none");
  EXPECT_EQ(kernel_name("a\n  kernel quantize_rows.avx512.x\n", 3), "quantize_rows.avx512.x");
  EXPECT_EQ(kernel_name("nothing to see\nhere", 3), "nothing to see");
}

/// Plans for a machine with AMX: made anywhere, and not run.
class PlansWithAmx : public testing::Test {
 protected:
  PlansWithAmx() {
    auto made = make_context({}, cpu_, jit::system_memory());
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (made.ok()) ctx_ = *made;
  }
  IsaLevel level(const std::string& op, int64_t m, const char* rest = "") const {
    const std::string text = op + "/m:" + std::to_string(m) + "/n:64/k:64" + rest;
    const Result<Problem> problem = parse_problem(text);
    EXPECT_TRUE(problem.ok()) << text;
    return level_of_kernel(kernel_name(explain(*problem, ctx_), m));
  }

  const jit::FakeCpu cpu_ = test::amx_machine();
  Context ctx_;
};

// ops/README.md: integer sums of up to four rows are avx512's, all others are amx's.
TEST_F(PlansWithAmx, KernelsOfBothFamiliesAreToldApartByTheRows) {
  for (const int64_t m : {1, 2, 3, 4, 5, 6, 16, 17, 100, 5000}) {
    EXPECT_EQ(level("int8_gemm", m), m <= 4 ? IsaLevel::kAvx512 : IsaLevel::kAmx) << m;
    EXPECT_EQ(level("int8_gemm", m, "/a:s8/act:s8"), m <= 4 ? IsaLevel::kAvx512 : IsaLevel::kAmx)
        << m;
    EXPECT_EQ(level("int8_gemm", m, "/act:bf16"), IsaLevel::kAmx) << m;
    EXPECT_EQ(level("bf16_gemm", m), IsaLevel::kAmx) << m;
  }
}

TEST_F(PlansWithAmx, OpenLevelsAreResolvedByTheRows) {
  std::vector<Problem> problems;
  for (const char* text : {"int8_gemm/m:4/n:64/k:64", "int8_gemm/m:5/n:64/k:64",
                           "bf16_gemm/m:4/n:64/k:64", "quantize_rows/m:5/k:64"}) {
    problems.push_back(*parse_problem(text));
  }
  resolve_levels(ctx_, &problems);
  EXPECT_EQ(problems[0].isa, IsaLevel::kAvx512);
  EXPECT_EQ(problems[1].isa, IsaLevel::kAmx);
  EXPECT_EQ(problems[2].isa, IsaLevel::kAmx);
  EXPECT_EQ(problems[3].isa, IsaLevel::kAvx512);
}

TEST_F(PlansWithAmx, NeitherFamilyIsRefused) {
  const std::string text = explain(*parse_problem("int8_gemm/m:1/n:64/k:64"), ctx_);
  for (const IsaLevel level : {IsaLevel::kAvx512, IsaLevel::kAmx}) {
    EXPECT_EQ(why_not(text, level), "the plan has no kernel of that level for this problem");
  }
}

}  // namespace
}  // namespace quern::bench
