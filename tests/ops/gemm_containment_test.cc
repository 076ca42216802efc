// NaN and infinity stay in their row or column (bug_log T01), whatever lies around the operands.
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/ops/gemm_fixture.h"

namespace quern::test {
namespace {

using GemmContainmentTest = GemmTest;

constexpr int64_t kDepths[] = {1, 2, 3, 31, 33, 63, 65, 130};

/// Runs the case as filled, then again after `poison(data)`, and wants every element outside the
/// poisoned row or column to keep its bits and every one inside to be what `inside` says.
template <typename Poison, typename Hit, typename Inside>
void expect_contained(const Context& ctx, const GemmCase& c, Poison poison, Hit hit,
                      Inside inside) {
  GemmData clean(c), dirty(c);
  poison(dirty);
  Result<GemmOp> op = GemmOp::create(ctx, c);
  ASSERT_TRUE(op.ok()) << op.status().message();
  ASSERT_TRUE(op->pack(clean).ok());
  const std::vector<uint32_t> before = output_bits(*op, c, clean);
  ASSERT_TRUE(op->pack(dirty).ok());
  const std::vector<uint32_t> after = output_bits(*op, c, dirty);
  ASSERT_EQ(before.size(), after.size());
  for (int64_t i = 0; i < c.problem.m; ++i) {
    for (int64_t j = 0; j < c.problem.n; ++j) {
      const size_t at = static_cast<size_t>(i * c.problem.n + j);
      if (hit(i, j)) {
        EXPECT_TRUE(inside(dirty.c.get(i, j)))
            << "[" << i << ", " << j << "] is " << dirty.c.get(i, j) << " in " << to_string(c);
      } else {
        ASSERT_EQ(after[at], before[at]) << "leaked to [" << i << ", " << j << "] " << to_string(c);
      }
    }
  }
}

bool is_nan(double x) {
  return std::isnan(x);
}
bool is_not_finite(double x) {
  return !std::isfinite(x);
}

/// T01: 17 rows, and C in every type, with and without gate and up.
std::vector<GemmCase> containment_cases(const GemmKind& kind) {
  std::vector<GemmCase> cases;
  for (const int64_t k : kDepths) {
    for (const int64_t pad : {int64_t{0}, int64_t{7}}) {
      for (const bool silu_mul : {false, true}) {
        GemmCase c = make_case(kind, 17, 21, k);
        c.a_pad = pad;  // gaps are NaN
        c.w_pad = pad;
        c.problem.c = k % 2 ? DType::kBF16 : DType::kF32;
        c.problem.epilogue.bias = k % 3 == 0;
        if (silu_mul) c.problem.epilogue.activation = Activation::kSiluMul;
        cases.push_back(c);
      }
    }
  }
  return cases;
}

TEST_P(GemmContainmentTest, RowOfActivations) {
  if (kind().a == DType::kS8) GTEST_SKIP() << "s8 holds no NaN; the row scale is another test";
  for (const GemmCase& c : containment_cases(kind())) {
    for (const float value : kNonFinite) {
      for (const int64_t row : {int64_t{0}, int64_t{3}, int64_t{16}}) {
        // Dynamic quantization makes the row NaN whatever is not finite. Else an infinity may give
        // an infinity of either sign or NaN, and behind a SiLU anything.
        const bool exact_nan = std::isnan(value) || c.integer_sums();
        expect_contained(
            ctx(), c, [&](GemmData& d) { d.a.set_row(row, value); },
            [&](int64_t i, int64_t) { return i == row; },
            [&](double x) { return exact_nan ? is_nan(x) : c.gate_up() || is_not_finite(x); });
      }
    }
  }
}

TEST_P(GemmContainmentTest, OneActivation) {
  if (kind().a == DType::kS8) GTEST_SKIP() << "s8 holds no NaN";
  for (const GemmCase& c : containment_cases(kind())) {
    const int64_t last = c.problem.k - 1;  // in the K tail, next to the following row
    expect_contained(
        ctx(), c, [&](GemmData& d) { d.a.set(5, last, std::numeric_limits<double>::quiet_NaN()); },
        [](int64_t i, int64_t) { return i == 5; }, is_nan);
  }
}

TEST_P(GemmContainmentTest, RowScale) {
  if (kind().a != DType::kS8) GTEST_SKIP() << "row scales are given with s8 activations only";
  for (const GemmCase& c : containment_cases(kind())) {
    expect_contained(
        ctx(), c, [](GemmData& d) { d.a_scale.set(0, 3, std::nan("")); },
        [](int64_t i, int64_t) { return i == 3; }, is_nan);
  }
}

TEST_P(GemmContainmentTest, ColumnScale) {
  if (std::strcmp(kind().op, "bf16_gemm") == 0) GTEST_SKIP() << "bf16 weights have no scale";
  if (std::strcmp(kind().op, "fp4_gemm") == 0) GTEST_SKIP() << "a NaN scale is refused";
  for (const GemmCase& c : containment_cases(kind())) {
    for (int part = 0; part < c.parts() && !c.grouped() && !c.is_fp4(); ++part) {
      expect_contained(
          ctx(), c, [part](GemmData& d) { d.w_scale[part].set(0, 18, std::nan("")); },
          [](int64_t, int64_t j) { return j == 18; }, is_nan);
    }
  }
}

// The scale of one group of one column, or its zero, in whichever group.
TEST_P(GemmContainmentTest, GroupScaleAndZero) {
  if (std::strcmp(kind().op, "int4_gemm") != 0) GTEST_SKIP() << "only int4 weights have groups";
  for (GemmCase c : containment_cases(kind())) {
    c.problem.group = 32;
    for (const Int4Zeros zeros : {Int4Zeros::kInteger, Int4Zeros::kF32}) {
      c.problem.zeros = zeros;
      c.storage = c.gate_up() ? Int4Storage::kAwq : Int4Storage::kGptq;
      const int64_t groups = (c.problem.k + 31) / 32;
      for (const int64_t group : {int64_t{0}, groups - 1}) {
        for (const float value : kNonFinite) {
          expect_contained(
              ctx(), c, [&](GemmData& d) { d.int4[c.parts() - 1].scale.set(group, 18, value); },
              [](int64_t, int64_t j) { return j == 18; },
              [&](double x) { return std::isnan(value) ? is_nan(x) : is_not_finite(x); });
        }
        if (zeros != Int4Zeros::kF32) continue;
        expect_contained(
            ctx(), c, [&](GemmData& d) { d.int4[c.parts() - 1].zero.set(group, 18, std::nan("")); },
            [](int64_t, int64_t j) { return j == 18; }, is_nan);
      }
    }
  }
}

// A scale of all columns of a block of 16 and of K, in whichever group.
TEST_P(GemmContainmentTest, BlockScale) {
  if (!is_fp8()) GTEST_SKIP() << "only fp8 weights have blocks";
  for (GemmCase c : containment_cases(kind())) {
    c.problem.block_n = 16;
    c.problem.block_k = 32;
    const int64_t groups = (c.problem.k + 31) / 32;
    for (const int64_t group : {int64_t{0}, groups - 1}) {
      for (const float value : kNonFinite) {
        expect_contained(
            ctx(), c, [&](GemmData& d) { d.w_scale[c.parts() - 1].set(1, group, value); },
            [](int64_t, int64_t j) { return j >= 16; },
            [&](double x) { return std::isnan(value) ? is_nan(x) : is_not_finite(x); });
      }
    }
  }
}

// NaN of both formats, and the infinity of e5m2, at any depth of a column.
TEST_P(GemmContainmentTest, CodeOfWeights) {
  if (!is_fp8()) GTEST_SKIP() << "the tests of other weights have theirs";
  for (GemmCase c : containment_cases(kind())) {
    c.problem.block_k = 32;
    for (const auto& [type, code] :
         {std::pair{DType::kE4M3, 0x7f}, std::pair{DType::kE4M3, 0xff},
          std::pair{DType::kE5M2, 0x7e}, std::pair{DType::kE5M2, 0xfc}}) {
      c.problem.weights = type;
      const bool infinity = code == 0xfc;
      for (const int64_t depth : {int64_t{0}, c.problem.k / 2, c.problem.k - 1}) {
        expect_contained(
            ctx(), c,
            [&](GemmData& d) {
              d.w[c.parts() - 1].set_bits(18, depth, static_cast<uint32_t>(code));
            },
            [](int64_t, int64_t j) { return j == 18; },
            [&](double x) { return infinity ? is_not_finite(x) : is_nan(x); });
      }
    }
  }
}

TEST_P(GemmContainmentTest, ColumnOfWeights) {
  if (std::strcmp(kind().op, "bf16_gemm") != 0) GTEST_SKIP() << "s8 weights hold no NaN";
  for (const GemmCase& c : containment_cases(kind())) {
    for (const float value : kNonFinite) {
      for (const int64_t col : {int64_t{0}, int64_t{15}, int64_t{20}}) {
        expect_contained(
            ctx(), c, [&](GemmData& d) { d.w[c.parts() - 1].set_row(col, value); },
            [&](int64_t, int64_t j) { return j == col; },
            [&](double x) { return std::isnan(value) ? is_nan(x) : is_not_finite(x); });
      }
    }
  }
}

TEST_P(GemmContainmentTest, BiasAndResidual) {
  for (GemmCase c : containment_cases(kind())) {
    c.problem.epilogue.bias = true;
    c.problem.epilogue.residual = true;
    expect_contained(
        ctx(), c, [&](GemmData& d) { d.bias.set(0, 20, std::nan("")); },
        [](int64_t, int64_t j) { return j == 20; }, is_nan);
    expect_contained(
        ctx(), c, [&](GemmData& d) { d.residual.set(2, 20, std::nan("")); },
        [](int64_t i, int64_t j) { return i == 2 && j == 20; }, is_nan);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, GemmContainmentTest, every_gemm(), gemm_test_name);

}  // namespace
}  // namespace quern::test
