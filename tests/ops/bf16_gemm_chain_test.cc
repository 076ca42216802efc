// The one chain of f32 accumulation: literal numbers (bug_log B20, B21), and models of the bf16 dot
// products, which every kernel of a level must match bit for bit on normal values.
#include <cmath>
#include <cstring>

#include "reference/numeric.h"
#include "tests/ops/gemm_fixture.h"

namespace quern::test {
namespace {

/// As the instructions read it: zero behind the end of a row, and for subnormals.
float element(const MatrixView& m, int64_t i, int64_t k) {
  if (k >= m.cols) return 0.0f;
  const float x = static_cast<float>(reference::load(m, i, k));
  return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
}

/// vdpbf16ps on one lane: pairs of depths ascending, in each pair the odd element first, each a
/// fused multiply-add into the accumulator. Depth is padded with a zero to whole pairs. Subnormal
/// inputs and results count as zero; the fills below stay clear of the latter.
float dot_bf16_chain(const MatrixView& a, int64_t row, const MatrixView& w, int64_t col) {
  float acc = 0;
  for (int64_t k = 0; k < a.cols; k += 2) {
    acc = std::fmaf(element(a, row, k + 1), element(w, col, k + 1), acc);
    acc = std::fmaf(element(a, row, k), element(w, col, k), acc);
  }
  return acc;
}

/// tdpbf16ps on one element: in each tile of 32 depths the even and the odd ones are summed apart
/// by fused multiply-adds from zero, and their sum is added to the accumulator last.
float dot_bf16_tiles(const MatrixView& a, int64_t row, const MatrixView& w, int64_t col) {
  float acc = 0;
  for (int64_t tile = 0; tile < a.cols; tile += 32) {
    float sum[2] = {0, 0};
    for (int64_t k = tile; k < tile + 32; ++k) {
      sum[k % 2] = std::fmaf(element(a, row, k), element(w, col, k), sum[k % 2]);
    }
    const float both = sum[0] + sum[1];
    acc = acc + both;
  }
  return acc;
}

class Bf16ChainTest : public IsaTest {
 protected:
  float dot(const GemmData& data, int64_t i, int64_t j) const {
    const auto model = GetParam().level == IsaLevel::kAmx ? dot_bf16_tiles : dot_bf16_chain;
    return model(data.a.view(), i, data.w[0].view(), j);
  }
  void expect_chain(const GemmCase& c) {
    GemmData data(c);
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok()) << op.status().message();
    ASSERT_TRUE(op->pack(data).ok());
    ASSERT_TRUE(op->run(args_of(c, data)).ok());
    for (int64_t i = 0; i < c.problem.m; ++i) {
      for (int64_t j = 0; j < c.problem.n; ++j) {
        float t = dot(data, i, j);
        if (c.is_int8()) t = t * static_cast<float>(data.w_scale[0].get(0, j));
        if (c.problem.epilogue.bias) t = t + static_cast<float>(data.bias.get(0, j));
        if (c.problem.epilogue.residual) t = t + static_cast<float>(data.residual.get(i, j));
        const double expected = reference::round_output(c.problem.c, t);
        ASSERT_EQ(data.c.get(i, j), expected) << "[" << i << ", " << j << "] " << to_string(c);
      }
    }
  }

  double one(int64_t k, double a, double w, DType type) {
    GemmCase c = make_case(kGemmKinds[0], 1, 1, k);
    c.problem.c = type;
    GemmData data(c);
    data.a.set_all(a);
    data.w[0].set_all(w);
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    EXPECT_TRUE(op.ok()) << op.status().message();
    if (!op.ok()) return -1;
    EXPECT_TRUE(op->pack(data).ok());
    EXPECT_TRUE(op->run(args_of(c, data)).ok());
    return data.c.get(0, 0);
  }
};

TEST_P(Bf16ChainTest, OnesGiveKRoundedOnce) {
  for (const int64_t k : {1, 2, 3, 4, 255, 256}) {
    EXPECT_EQ(one(k, 1, 1, DType::kBF16), static_cast<double>(k));
  }
  EXPECT_EQ(one(257, 1, 1, DType::kBF16), 256.0);  // tie to even
  EXPECT_EQ(one(259, 1, 1, DType::kBF16), 260.0);  // tie to even
  EXPECT_EQ(one(1024, 1, 1, DType::kBF16), 1024.0);
  EXPECT_EQ(one(4096, 1, 1, DType::kBF16), 4096.0);
  for (const int64_t k : {257, 1023, 4097, 70001, 262144}) {
    EXPECT_EQ(one(k, 1, 1, DType::kF32), static_cast<double>(k));
  }
  EXPECT_EQ(one(255, 1, -1, DType::kBF16), -255.0);
}

TEST_P(Bf16ChainTest, LargeValuesAreNotCutToF16) {  // bug_log D14
  EXPECT_EQ(one(4, 256, 128, DType::kBF16), 131072.0);
  EXPECT_EQ(one(2, 0x1p60, 0x1p60, DType::kF32), 0x1p121);
}

TEST_P(Bf16ChainTest, SubnormalInputsCountAsZero) {
  EXPECT_EQ(one(3, 0x1p-127, 0x1p100, DType::kF32), 0.0);
  EXPECT_EQ(one(3, 0x1p100, 0x1p-133, DType::kF32), 0.0);
  EXPECT_EQ(one(1, 0x1p-126, 0x1p100, DType::kF32), 0x1p-26);
}

TEST_P(Bf16ChainTest, CancellationKeepsTheSmallTerm) {
  GemmCase c = make_case(kGemmKinds[0], 1, 1, 4);
  c.problem.c = DType::kF32;
  GemmData data(c);
  data.w[0].set_all(1);
  data.a.set(0, 0, 3);
  data.a.set(0, 1, 0x1p23);
  data.a.set(0, 2, 0.5);
  data.a.set(0, 3, -0x1p23);
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok()) << op.status().message();
  ASSERT_TRUE(op->pack(data).ok());
  ASSERT_TRUE(op->run(args_of(c, data)).ok());
  EXPECT_EQ(data.c.get(0, 0), 3.5);
}

TEST_P(Bf16ChainTest, EqualsTheModelBitForBit) {
  if (GetParam().name == "amx_native") {
    // The manual gives the order as pseudo-code; nobody promises that silicon rounds like it.
    GTEST_SKIP() << "not run: the model is the manual's and the emulator's";
  }
  for (const int kind : {0, 4}) {  // bf16 and w8a16
    uint64_t variant = 0;
    for (const int64_t k : {1, 2, 3, 4, 5, 7, 8, 31, 32, 33, 63, 64, 65, 130, 257, 1000, 2500}) {
      for (const int64_t m : {1, 2, 5, 6, 7, 13, 33}) {
        for (const int64_t n : {1, 16, 17, 70}) {
          if (m * n * k > 1000000) continue;
          GemmCase c = make_case(kGemmKinds[kind], m, n, k);
          vary(c, ++variant);
          c.fill = Fill::kRandom;
          c.problem.epilogue.activation = Activation::kNone;
          c.residual_is_c = false;
          ASSERT_NO_FATAL_FAILURE(expect_chain(c));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Bf16ChainTest, ::testing::ValuesIn(isas_to_test()), isa_name);

}  // namespace
}  // namespace quern::test
