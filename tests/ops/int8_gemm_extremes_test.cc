// Literal numbers for the places where int8 GEMMs have gone wrong elsewhere (bug_log T02, I01-I05).
#include <cmath>
#include <cstring>

#include "tests/ops/gemm_fixture.h"

namespace quern::test {
namespace {

class Int8ExtremesTest : public IsaTest {
 protected:
  /// f32 C of an int8 GEMM with given s8 activations and unit scales. `a` and `w` fill all of A and
  /// W; `edit` may change single elements.
  template <typename Edit>
  GemmData run(int64_t m, int64_t n, int64_t k, int a, int w, Edit edit) {
    GemmCase c = make_case(kGemmKinds[3], m, n, k);
    c.problem.c = DType::kF32;
    GemmData data(c);
    data.a.set_all(a);
    data.w[0].set_all(w);
    data.a_scale.set_all(1);
    data.w_scale[0].set_all(1);
    edit(data);
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    EXPECT_TRUE(op.ok()) << op.status().message();
    if (!op.ok()) return data;
    EXPECT_TRUE(op->pack(data).ok());
    const Status status = op->run(args_of(c, data));
    EXPECT_TRUE(status.ok()) << status.message();
    return data;
  }
  void expect_all(int64_t m, int64_t n, int64_t k, int a, int w, double expected) {
    const GemmData d = run(m, n, k, a, w, [](GemmData&) {});
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        ASSERT_EQ(d.c.get(i, j), expected) << m << " " << n << " " << k << " " << a << " * " << w;
      }
    }
  }
};

TEST_P(Int8ExtremesTest, ProductsThatASixteenBitPathSaturates) {
  for (const int64_t m : {1, 4, 17}) {
    for (const int64_t n : {1, 4, 33}) {
      expect_all(m, n, 64, -128, -128, 1048576);
      expect_all(m, n, 64, 127, 127, 1032256);
      expect_all(m, n, 64, -128, 127, -1040384);
      expect_all(m, n, 64, 127, -128, -1040384);
      // T02's u8 255 is the packed code of 127, its u8 0 that of -128.
      expect_all(m, n, 64, 127, 1, 8128);
    }
  }
}

TEST_P(Int8ExtremesTest, FourByFourByFour) {  // I02
  expect_all(4, 4, 4, 127, 127, 64516);
  expect_all(4, 4, 4, -128, -128, 65536);
}

TEST_P(Int8ExtremesTest, SignsOfBothOperands) {  // I01: 129 is not -127
  expect_all(2, 3, 32, 1, -127, -4064);
  expect_all(2, 3, 32, 1, 1, 32);
  expect_all(2, 3, 32, -1, 1, -32);
  expect_all(2, 3, 32, -1, -128, 4096);
}

TEST_P(Int8ExtremesTest, EveryProductOfTwoBytes) {  // I05
  // Row i of A holds i - 128 at one depth, column j of W j - 128: C is the multiplication table.
  for (const int64_t depth : {0, 1, 2, 3, 4, 66}) {
    const GemmData d = run(256, 256, 67, 0, 0, [depth](GemmData& data) {
      for (int64_t i = 0; i < 256; ++i) {
        data.a.set(i, depth, static_cast<double>(i - 128));
        data.w[0].set(i, depth, static_cast<double>(i - 128));
      }
    });
    for (int64_t i = 0; i < 256; ++i) {
      for (int64_t j = 0; j < 256; ++j) {
        ASSERT_EQ(d.c.get(i, j), static_cast<double>((i - 128) * (j - 128)));
      }
    }
  }
}

TEST_P(Int8ExtremesTest, AlternatingSigns) {
  const GemmData d = run(3, 18, 130, 0, 0, [](GemmData& data) {
    for (int64_t k = 0; k < 130; ++k) {
      data.a.set_col(k, k % 2 ? -128 : 127);
      data.w[0].set_col(k, k % 2 ? 127 : -128);
    }
  });
  EXPECT_EQ(d.c.get(2, 17), 130 * -16256.0);
}

// The sum of 131,072 products of -128 and -128 is 2^31, the first that 32 bits do not hold.
TEST_P(Int8ExtremesTest, SumsBeyond31Bits) {
  for (const int64_t k : {65535, 65536, 65537, 131071, 131072, 131073, 196608, 400000}) {
    const double positive =
        static_cast<double>(static_cast<float>(16384.0 * static_cast<double>(k)));
    expect_all(1, 1, k, -128, -128, positive);
    expect_all(3, 17, k, -128, -128, positive);
    const double negative =
        static_cast<double>(static_cast<float>(-16256.0 * static_cast<double>(k)));
    expect_all(2, 5, k, -128, 127, negative);
    // More rows than AVX-512 takes over from AMX: two tiles of rows, the second with one row.
    expect_all(17, 5, k, -128, -128, positive);
    expect_all(17, 5, k, -128, 127, negative);
  }
}

TEST_P(Int8ExtremesTest, CodesAndSumsThatCancelAcrossTheCut) {
  // First half +2^31, second half -2^31: 32-bit parts wrap, the sum is one left-over product.
  const int64_t k = 262144;
  const GemmData d = run(2, 3, k, -128, -128, [k](GemmData& data) {
    for (int64_t i = k / 2; i < k; ++i) data.w[0].set_col(i, 127);
    for (int64_t i = k / 2; i < k; ++i) data.a.set(1, i, 0);
  });
  EXPECT_EQ(d.c.get(0, 2), 131072.0 * (16384 - 16256));
  EXPECT_EQ(d.c.get(1, 0), 2147483648.0);
}

TEST_P(Int8ExtremesTest, DepthIsLimitedTo2To24) {
  for (const Int8Activations mode :
       {Int8Activations::kDynamicS8, Int8Activations::kS8, Int8Activations::kBF16}) {
    Int8GemmDesc desc;
    desc.n = 1;
    desc.activations = mode;
    desc.a = mode == Int8Activations::kS8 ? DType::kS8 : DType::kBF16;
    desc.k = int64_t{1} << 24;
    EXPECT_TRUE(Int8Gemm::create(ctx(), desc).ok());
    desc.k += 1;
    const Status status = Int8Gemm::create(ctx(), desc).status();
    EXPECT_EQ(status.code(), StatusCode::kTooLarge);
    EXPECT_NE(status.message().find("k (16777217)"), std::string::npos) << status.message();
  }
}

// bug_log T12: gate and up keep their own scales.
TEST_P(Int8ExtremesTest, GateAndUpKeepTheirScales) {
  GemmCase c = make_case(kGemmKinds[3], 2, 35, 5);
  c.problem.c = DType::kF32;
  c.problem.epilogue.activation = Activation::kSiluMul;
  GemmData data(c);
  data.a.set_all(1);
  data.a_scale.set_all(1);
  data.w[0].set_all(100);  // gate 500 * 1: silu(500) = 500 exactly
  data.w[1].set_all(1);
  data.w_scale[0].set_all(1);
  data.w_scale[1].set_all(0.25);
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok()) << op.status().message();
  ASSERT_TRUE(op->pack(data).ok());
  ASSERT_TRUE(op->run(args_of(c, data)).ok());
  for (int64_t j = 0; j < 35; ++j) EXPECT_EQ(data.c.get(1, j), 625.0);
}

// f32 subnormal results: kept in an f32 C, zero in a bf16 C (the instruction's rule, reference/).
TEST_P(Int8ExtremesTest, SubnormalResults) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    GemmCase c = make_case(kGemmKinds[3], 1, 2, 1);
    c.problem.c = type;
    GemmData data(c);
    data.a.set_all(1);
    data.w[0].set(0, 0, 1);
    data.w[0].set(1, 0, -3);
    data.a_scale.set_all(0x1p-100);
    data.w_scale[0].set_all(0x1p-30);
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok()) << op.status().message();
    ASSERT_TRUE(op->pack(data).ok());
    ASSERT_TRUE(op->run(args_of(c, data)).ok());
    EXPECT_EQ(data.c.get(0, 0), type == DType::kF32 ? 0x1p-130 : 0.0);
    EXPECT_EQ(data.c.get(0, 1), type == DType::kF32 ? -3 * 0x1p-130 : 0.0);
    EXPECT_TRUE(std::signbit(data.c.get(0, 1)));
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Int8ExtremesTest, ::testing::ValuesIn(isas_to_test()), isa_name);

}  // namespace
}  // namespace quern::test
