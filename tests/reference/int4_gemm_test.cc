#include "reference/int4_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "reference/numeric.h"
#include "tests/support/int4_words.h"

namespace quern::reference {
namespace {

using test::int4_code_words;
using test::int4_zero_words;
using test::Int4Words;

struct Case {
  Int4GemmDesc desc;
  int64_t m = 1;
  std::vector<double> a;  ///< [m, k], rounded to bf16
  std::vector<uint8_t> code, up_code, zero;
  std::vector<float> scale, float_zero, bias, residual;
  std::vector<int32_t> g_idx;
  std::vector<float> c;

  std::vector<uint16_t> a_bits;
  Int4Words words, up_words, zero_words;

  Case(int64_t n, int64_t k, int64_t group, Int4Activations activations) {
    desc.n = n;
    desc.k = k;
    desc.group = group;
    desc.scale = DType::kF32;
    desc.c = DType::kF32;
    desc.activations = activations;
    scale.assign(static_cast<size_t>(n * groups()), 1.0f);
  }
  int64_t groups() const {
    const int64_t columns = desc.group < 0 ? desc.k : desc.group;
    return columns == 0 ? 0 : (desc.k + columns - 1) / columns;
  }
  Int4GemmArgs args() {
    const int64_t n = desc.n, k = desc.k;
    a_bits.clear();
    for (const double x : a) a_bits.push_back(bf16_from_double(x));
    Int4GemmArgs r;
    r.a = {a_bits.data(), DType::kBF16, m, k, k};
    words = int4_code_words(Int4Storage::kGptq, code, n, k);
    r.weights.codes = words.view();
    r.weights.scale = matrix_view(scale.data(), groups(), n);
    if (desc.zeros == Int4Zeros::kInteger) {
      zero_words = int4_zero_words(Int4Storage::kGptq, zero, n, groups());
      r.weights.zero = zero_words.view();
    } else if (desc.zeros == Int4Zeros::kF32) {
      r.weights.zero = matrix_view(float_zero.data(), groups(), n);
    }
    r.weights.g_idx = vector_view(g_idx.data(), static_cast<int64_t>(g_idx.size()));
    r.up_weights = r.weights;
    if (!up_code.empty()) {
      up_words = int4_code_words(Int4Storage::kGptq, up_code, n, k);
      r.up_weights.codes = up_words.view();
    }
    c.assign(static_cast<size_t>(m * n), -1.0f);
    r.c = mutable_matrix_view(c.data(), m, n);
    r.bias = vector_view(bias.data(), static_cast<int64_t>(bias.size()));
    r.residual = matrix_view(residual.data(), m, n);
    return r;
  }
  std::vector<float> run() {
    const Int4GemmArgs r = args();
    EXPECT_TRUE(int4_gemm(desc, r).ok());
    return c;
  }
  Bounded exact() { return int4_gemm_exact(desc, args()).at(0, 0); }
};

constexpr auto kW4A16 = Int4Activations::kBF16;
constexpr auto kW4A8 = Int4Activations::kDynamicS8;

TEST(Int4GemmReference, CodesMinusZerosTimesScales) {
  Case c(2, 4, 2, kW4A16);
  c.a = {1, 2, -3, 0.5};
  c.code = {8, 9, 0, 15, 10, 7, 8, 12};
  c.scale = {2, 3, 5, 7};  // [group, n]
  // n 0: 2 (0 1 + 1 2) + 5 (-8 * -3 + 7 * 0.5) = 4 + 137.5; n 1: 3 (2 - 2) + 7 (0 + 2)
  EXPECT_EQ(c.run(), (std::vector<float>{141.5f, 14.0f}));
}

TEST(Int4GemmReference, EveryGroupHasItsOwnScale) {  // bug_log I06
  for (const Int4Activations activations : {kW4A16, kW4A8}) {
    Case c(1, 96, 24, activations);
    c.a.assign(96, 1.0);
    c.code.assign(96, 9);
    c.scale = {1, 2, 4, 8};
    // W4A8: q_a = 127, s = 1/127; 24 * 127 * (1 + 2 + 4 + 8) / 127, one rounding from 360.
    EXPECT_NEAR(c.run()[0], 360.0f, 360 * 0x1p-23);
  }
}

TEST(Int4GemmReference, ZerosOfEveryGroupAndColumn) {  // bug_log I08, I11
  for (const Int4Activations activations : {kW4A16, kW4A8}) {
    Case c(3, 64, 32, activations);
    c.m = 2;
    c.a.assign(128, 127.0);
    c.desc.zeros = Int4Zeros::kInteger;
    c.code.assign(3 * 64, 7);
    c.zero = {0, 15, 7, 8, 1, 6};  // [n, group]
    // 32 * 127 * (7 - z) summed over the two groups: 7 - 8, 0 - 1, 6 + 1
    const std::vector<float> row = {-4064.0f, -4064.0f, 7 * 4064.0f};
    EXPECT_EQ(c.run(), (std::vector<float>{row[0], row[1], row[2], row[0], row[1], row[2]}));
  }
}

TEST(Int4GemmReference, ATailOfAGroupWithZeros) {  // bug_log I11: K = 36, G = 32
  for (const Int4Activations activations : {kW4A16, kW4A8}) {
    Case c(1, 36, 32, activations);
    c.desc.zeros = Int4Zeros::kInteger;
    c.a.assign(36, 127.0);
    c.code.assign(36, 3);
    c.zero = {5, 0};
    EXPECT_EQ(c.run()[0], 127.0f * (32 * -2 + 4 * 3));
  }
}

TEST(Int4GemmReference, SumsDoNotOverflowF16) {  // bug_log I12
  Case c(1, 128, 128, kW4A16);
  c.a.assign(128, 1000.0);
  c.code.assign(128, 15);
  EXPECT_EQ(c.run()[0], 896000.0f);  // 128 * 7 * 1000
}

TEST(Int4GemmReference, OperandsEqualToTheirZeroGiveNothing) {  // bug_log I13, L10
  for (const Int4Activations activations : {kW4A16, kW4A8}) {
    Case c(16, 4096, 128, activations);
    c.desc.zeros = Int4Zeros::kInteger;
    c.a.assign(4096, -128.0);
    for (int64_t n = 0; n < 16; ++n) {
      for (int64_t k = 0; k < 4096; ++k) c.code.push_back(static_cast<uint8_t>(n));
      for (int64_t g = 0; g < 32; ++g) c.zero.push_back(static_cast<uint8_t>(n));
    }
    EXPECT_EQ(c.run(), std::vector<float>(16, 0.0f));
  }
}

TEST(Int4GemmReference, GroupsOfTheActivationOrder) {  // bug_log L12
  for (const Int4Activations activations : {kW4A16, kW4A8}) {
    Case c(1, 64, 32, activations);
    c.desc.act_order = true;
    c.code.assign(64, 9);
    c.scale = {1, 2};
    for (int32_t k = 0; k < 64; ++k) {
      c.g_idx.push_back(k % 2);
      c.a.push_back(k % 2 ? 127.0 : -127.0);
    }
    EXPECT_EQ(c.run()[0], 127.0f * 32);  // -32 + 2 * 32
  }
}

TEST(Int4GemmReference, RowsAreQuantizedForW4A8) {
  Case c(1, 3, -1, kW4A8);
  c.a = {254, 3, -1};             // q = 127, 2 (of 1.5), 0 (of -0.5); scale 2
  c.code = {9, 10, 15};           // 1, 2, 7
  EXPECT_EQ(c.run()[0], 262.0f);  // 2 (127 + 4)
}

TEST(Int4GemmReference, W4A8AddsGroupsByFusedMultiplyAddsInOrder) {
  Case c(1, 2, 1, kW4A8);
  c.a = {127, 127};
  c.code = {9, 9};
  c.scale = {0x1p24f, 1.0f / 127};
  // 127 * 2^24, whose f32 neighbours are 2^8 apart: the second group is lost.
  EXPECT_EQ(c.run()[0], 127 * 0x1p24f);
  // 127 * (1 + 2^-23) - 127 is 127 * 2^-23; had the product been rounded first, 128 * 2^-23.
  c.code = {7, 9};
  c.scale = {1.0f, 1.0f + 0x1p-23f};
  EXPECT_EQ(c.run()[0], 127 * 0x1p-23f);
}

TEST(Int4GemmReference, FloatZerosActOnTheSumOfTheRow) {
  for (const Int4Activations activations : {kW4A16, kW4A8}) {
    Case c(2, 4, 2, activations);
    c.desc.zeros = Int4Zeros::kF32;
    c.a = {127, 1, 2, -3};
    c.code = {1, 2, 3, 4, 15, 0, 0, 15};
    c.float_zero = {0.5f, -2.25f, 7.75f, 100.0f};  // [group, n]
    c.scale = {1, 2, 4, 8};
    // n 0: (129 - 64) + 4 (-6 + 7.75); n 1: 2 (1905 + 2.25 * 128) + 8 (-45 + 100)
    EXPECT_EQ(c.run(), (std::vector<float>{72.0f, 4826.0f}));
  }
}

TEST(Int4GemmReference, TheBoundIsThatOfTheGroupsAndTheirScales) {
  Case c(1, 4, 2, kW4A16);
  c.a = {1, 1, 1, 1};
  c.code = {9, 9, 9, 9};
  c.scale = {1, 2};
  const Bounded x = c.exact();
  EXPECT_EQ(x.value, 6.0);
  // Chains of two: 2 * 2 u * 2 in each group, times its scale: 8 u + 16 u; roundings 2 u + 6 u.
  EXPECT_GE(x.bound, 32 * 0x1p-24);
  EXPECT_LE(x.bound, 32.01 * 0x1p-24);
  c.desc.activations = kW4A8;
  EXPECT_EQ(c.exact().bound, 0);
}

TEST(Int4GemmReference, EpilogueStepsFollowTheGroups) {
  for (const Int4Activations activations : {kW4A16, kW4A8}) {
    Case c(1, 1, 1, activations);
    c.desc.epilogue.bias = true;
    c.desc.epilogue.residual = true;
    c.a = {127};
    c.code = {9};
    c.bias = {-27.0f};
    c.residual = {0.5f};
    EXPECT_EQ(c.run()[0], 100.5f);
    c.desc.epilogue = {true, Activation::kSiluMul, false};
    c.up_code = {10};
    c.bias = {-126.0f, -250.0f};
    EXPECT_NEAR(c.run()[0], 4 * 0.7310585786300049, 1e-6);  // silu(1) * 4
  }
}

TEST(Int4GemmReference, EmptyDepthIsZeroPlusEpilogue) {
  for (const Int4Activations activations : {kW4A16, kW4A8}) {
    Case c(2, 0, 128, activations);
    c.desc.epilogue.bias = true;
    c.bias = {3, -4};
    EXPECT_EQ(c.run(), (std::vector<float>{3, -4}));
  }
}

TEST(Int4GemmReference, NaNStaysInItsRowOrColumn) {
  for (const Int4Activations activations : {kW4A16, kW4A8}) {
    Case c(2, 2, 1, activations);
    c.m = 2;
    c.a = {std::nan(""), 127, 127, 127};
    c.code = {9, 9, 9, 9};
    std::vector<float> r = c.run();
    EXPECT_TRUE(std::isnan(r[0]) && std::isnan(r[1]));
    EXPECT_EQ(r[2], 254.0f);
    EXPECT_EQ(r[3], 254.0f);
    c.a[0] = 127;
    c.scale[1] = std::nanf("");
    r = c.run();
    EXPECT_TRUE(std::isnan(r[1]) && std::isnan(r[3]));
    EXPECT_EQ(r[0], 254.0f);
    EXPECT_EQ(r[2], 254.0f);
  }
}

TEST(Int4GemmReference, RefusesWhatDoesNotFit) {
  Case c(1, 2, 1, kW4A16);
  c.a = {1, 2};
  c.code = {1, 2};
  Int4GemmArgs args = c.args();
  args.weights.scale.rows = 1;
  EXPECT_EQ(int4_gemm(c.desc, args).code(), StatusCode::kInvalidArgument);
  args = c.args();
  args.a.cols = 3;
  EXPECT_EQ(int4_gemm(c.desc, args).code(), StatusCode::kInvalidArgument);
  c.desc.act_order = true;
  c.desc.epilogue.activation = Activation::kSiluMul;
  c.g_idx = {0, 1};
  args = c.args();
  ASSERT_TRUE(int4_gemm(c.desc, args).ok());
  const std::vector<int32_t> other = {1, 0};
  args.up_weights.g_idx = vector_view(other.data(), 2);
  EXPECT_EQ(int4_gemm(c.desc, args).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quern::reference
