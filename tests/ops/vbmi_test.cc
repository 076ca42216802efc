// Codes of 8-bit floats on machines without AVX512-VBMI (Cascade Lake, Cooper Lake): kernels of
// their own, whose names say so, and the same bits.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "jit/code_memory.h"
#include "ops/context_impl.h"
#include "tests/ops/bmm_case.h"
#include "tests/ops/gemm_case.h"
#include "tests/ops/other_maker.h"
#include "tests/support/isa_list.h"

namespace quern::test {
namespace {

using VbmiTest = IsaTest;

/// Kernels, of products and of decoding, whose names have the codes' type; and those of them that
/// say that they do without VBMI.
struct Kernels {
  int of_codes = 0, without_vbmi = 0;
};

Kernels kernels_in(const std::string& plan, const std::string& codes) {
  Kernels found;
  size_t end = 0;
  for (size_t at = 0; at < plan.size(); at = end + 1) {
    end = plan.find_first_of(" \n,;", at);
    if (end == std::string::npos) end = plan.size();
    const std::string word = plan.substr(at, end - at);
    const size_t isa = std::min(word.find(".avx512."), word.find(".amx."));
    if (isa == std::string::npos || word.find(codes, isa) == std::string::npos) continue;
    ++found.of_codes;
    if (word.find(".novbmi") != std::string::npos) ++found.without_vbmi;
  }
  return found;
}

/// Dot products where they are fast and two FMAs where they are slow or missing: each has a family
/// of its own.
template <typename Check>
void for_machines_without_vbmi(const TestIsa& isa, const Context& native, const Check& check) {
  for (const auto& [bf16, vendor] : {std::pair{true, kAuthenticAmd}, std::pair{true, kGenuineIntel},
                                     std::pair{false, kAuthenticAmd}}) {
    if (bf16 && !native.isa_report().avx512_bf16) continue;
    const OtherMaker maker(cpu_at(isa), bf16, vendor);
    const WithoutVbmi cpu(maker);
    ContextOptions options;
    options.max_isa = isa.level;
    const auto without = make_context(options, cpu, jit::system_memory());
    ASSERT_TRUE(without.ok()) << without.status().message();
    ASSERT_FALSE(without->isa_report().avx512_vbmi);
    check(*without);
  }
}

void expect_kernels(const std::string& plan, const Context& ctx, const char* codes) {
  const Kernels found = kernels_in(plan, codes);
  EXPECT_GT(found.of_codes, 0) << plan;
  EXPECT_EQ(found.without_vbmi, ctx.isa_report().avx512_vbmi ? 0 : found.of_codes) << plan;
}

TEST_P(VbmiTest, Fp8GemmWithout) {
  for (const DType type : {DType::kE4M3, DType::kE5M2}) {
    std::vector<GemmCase> cases;
    for (const int64_t m : {1, 5, 40}) {  // packed codes, and decoded ones
      cases.push_back(make_case(kFp8Kind, m, 50, 301));
      Problem& p = cases.back().problem;
      p.weights = type;
      p.block_n = 16;
      p.block_k = 64;
    }
    const auto plan_of = [&](const Context& ctx) {
      const Result<GemmOp> op = GemmOp::create(ctx, cases[0]);
      return op.ok() ? op->explain() : op.status().message();
    };
    expect_kernels(plan_of(ctx()), ctx(), to_string(type));
    for_machines_without_vbmi(GetParam(), ctx(), [&](const Context& without) {
      expect_kernels(plan_of(without), without, to_string(type));
      for (const GemmCase& c : cases) {
        EXPECT_EQ(bits_in(without, c), bits_in(ctx(), c)) << to_string(c);
      }
    });
  }
}

TEST_P(VbmiTest, BmmWithout) {
  std::vector<BmmCase> cases;
  for (const int64_t m : {1, 5, 40}) {
    cases.push_back(make_bmm(BmmOperand::kE4M3, 3, m, 50, 301));
  }
  const auto plan_of = [&](const Context& ctx) {
    const Result<BmmOp> op = BmmOp::create(ctx, cases[0]);
    return op.ok() ? op->op().explain() : op.status().message();
  };
  expect_kernels(plan_of(ctx()), ctx(), "e4m3");
  for_machines_without_vbmi(GetParam(), ctx(), [&](const Context& without) {
    expect_kernels(plan_of(without), without, "e4m3");
    for (const BmmCase& c : cases) {
      EXPECT_EQ(bits_in(without, c), bits_in(ctx(), c)) << to_string(c);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ops, VbmiTest, ::testing::ValuesIn(isas_to_test()), isa_name);

}  // namespace
}  // namespace quern::test
