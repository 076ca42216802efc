#include "reference/fp8_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "reference/numeric.h"

namespace quern::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr uint8_t kOne = 0x38, kTwo = 0x40, kThree = 0x44, kMinusOne = 0xb8;  // e4m3

/// Positive codes ascend in steps of the smallest number, which doubles with each exponent from the
/// second normal one on.
std::vector<double> ascending_codes(int per_exponent, double smallest) {
  std::vector<double> out(128);
  double step = smallest;
  for (int code = 1; code < 128; ++code) {
    out[static_cast<size_t>(code)] = out[static_cast<size_t>(code - 1)] + step;
    if (code >= 2 * per_exponent && code % per_exponent == 0) step *= 2;
  }
  return out;
}

struct Case {
  Fp8GemmDesc desc;
  int64_t m = 1;
  std::vector<double> a;  ///< [m, k], rounded to bf16
  std::vector<uint8_t> code, up_code;
  std::vector<float> scale, up_scale, bias, residual;
  std::vector<float> c;
  std::vector<uint16_t> a_bits;

  Case(int64_t n, int64_t k, int64_t block_n, int64_t block_k) {
    desc.n = n;
    desc.k = k;
    desc.block_n = block_n;
    desc.block_k = block_k;
    desc.c = DType::kF32;
    scale.assign(static_cast<size_t>(blocks(n, block_n) * blocks(k, block_k)), 1.0f);
  }
  static int64_t blocks(int64_t size, int64_t block) {
    if (size == 0) return 0;
    return block < 0 ? 1 : (size + block - 1) / block;
  }
  Fp8Weights weights(const std::vector<uint8_t>& codes, const std::vector<float>& scales) const {
    Fp8Weights w;
    w.codes = {codes.data(), desc.weights, desc.n, desc.k, desc.k};
    w.scale =
        matrix_view(scales.data(), blocks(desc.n, desc.block_n), blocks(desc.k, desc.block_k));
    return w;
  }
  Fp8GemmArgs args() {
    a_bits.clear();
    for (const double x : a) a_bits.push_back(bf16_from_double(x));
    Fp8GemmArgs r;
    r.a = {a_bits.data(), DType::kBF16, m, desc.k, desc.k};
    r.weights = weights(code, scale);
    r.up_weights = up_code.empty() ? r.weights : weights(up_code, up_scale);
    c.assign(static_cast<size_t>(m * desc.n), -1.0f);
    r.c = mutable_matrix_view(c.data(), m, desc.n);
    r.bias = vector_view(bias.data(), static_cast<int64_t>(bias.size()));
    r.residual = matrix_view(residual.data(), m, desc.n);
    return r;
  }
  std::vector<float> run() {
    const Fp8GemmArgs r = args();
    EXPECT_TRUE(fp8_gemm(desc, r).ok());
    return c;
  }
  Bounded exact() { return fp8_gemm_exact(desc, args()).at(0, 0); }
};

/// Codes 0..255 as 256 rows of weights of one column.
std::vector<float> decoded_by_the_product(DType type) {
  Case c(256, 1, -1, -1);
  c.desc.weights = type;
  c.a = {1};
  for (int code = 0; code < 256; ++code) c.code.push_back(static_cast<uint8_t>(code));
  return c.run();
}

void expect_codes(const std::vector<float>& decoded, const std::vector<double>& positive) {
  for (size_t code = 0; code < 128; ++code) {
    if (std::isnan(positive[code])) {
      EXPECT_TRUE(std::isnan(decoded[code]) && std::isnan(decoded[128 + code])) << code;
    } else {
      EXPECT_EQ(decoded[code], positive[code]) << code;
      EXPECT_EQ(decoded[128 + code], -positive[code]) << code;
    }
  }
}

TEST(Fp8GemmReference, EveryE4M3Code) {
  std::vector<double> positive = ascending_codes(8, 0x1p-9);
  EXPECT_EQ(positive[0x08], 0x1p-6);
  EXPECT_EQ(positive[kOne], 1.0);
  EXPECT_EQ(positive[0x7e], 448.0);
  positive[0x7f] = std::nan("");
  expect_codes(decoded_by_the_product(DType::kE4M3), positive);
}

TEST(Fp8GemmReference, EveryE5M2Code) {
  std::vector<double> positive = ascending_codes(4, 0x1p-16);
  EXPECT_EQ(positive[0x04], 0x1p-14);
  EXPECT_EQ(positive[0x3c], 1.0);
  EXPECT_EQ(positive[0x7b], 57344.0);
  positive[0x7c] = kInf;
  for (size_t code = 0x7d; code < 0x80; ++code) positive[code] = std::nan("");
  expect_codes(decoded_by_the_product(DType::kE5M2), positive);
}

TEST(Fp8GemmReference, OneScaleForEachBlockAndPartialLastBlocks) {
  Case c(3, 5, 2, 4);
  c.a = {1, 2, 3, 4, 5};
  c.code.assign(15, kOne);
  c.scale = {1, 10, 100, 1000};  // [2, 2]
  // 10 of the first four columns, 5 of the last
  EXPECT_EQ(c.run(), (std::vector<float>{60, 60, 6000}));
}

TEST(Fp8GemmReference, OneScaleForEachChannelOrForAll) {
  Case channels(2, 3, 1, -1);
  channels.a = {1, 2, 3};
  channels.code = {kOne, kOne, kOne, kOne, kMinusOne, kTwo};
  channels.scale = {0.5f, 4};
  EXPECT_EQ(channels.run(), (std::vector<float>{3, 20}));
  channels.desc.block_n = -1;
  channels.scale = {8};
  EXPECT_EQ(channels.run(), (std::vector<float>{48, 40}));
}

TEST(Fp8GemmReference, ScalesOfAnyOfThreeTypes) {
  Case c(1, 1, 1, 1);
  c.a = {2};
  c.code = {kThree};
  Fp8GemmArgs args = c.args();
  const uint16_t bf16 = 0x3fc0, f16 = 0x3e00;  // 1.5
  args.weights.scale = {&bf16, DType::kBF16, 1, 1, 1};
  ASSERT_TRUE(fp8_gemm(c.desc, args).ok());
  EXPECT_EQ(c.c[0], 9.0f);
  c.c[0] = 0;
  args.weights.scale = {&f16, DType::kF16, 1, 1, 1};
  ASSERT_TRUE(fp8_gemm(c.desc, args).ok());
  EXPECT_EQ(c.c[0], 9.0f);
}

TEST(Fp8GemmReference, ScalesActOnTheSumOfTheirBlock) {
  // 2^-140 is no bf16 operand: a weight times its scale would be a subnormal, the sum's scale
  // works.
  Case c(1, 2, -1, 1);
  c.a = {0x1p100, 1};
  c.code = {kOne, kOne};
  c.scale = {0x1p-140f, 0x1p-149f};
  EXPECT_EQ(c.run()[0], 0x1p-40f);
  c.a = {0, 1};
  EXPECT_EQ(c.run()[0], 0x1p-149f);
}

TEST(Fp8GemmReference, TheBoundIsThatOfTheBlocksAndTheirScales) {
  Case c(1, 4, 1, 2);
  c.a = {1, 1, 1, 1};
  c.code.assign(4, kOne);
  c.scale = {1, 2};
  const Bounded x = c.exact();
  EXPECT_EQ(x.value, 6.0);
  // Chains of two: 2 * 2 u * 2 in each block, times its scale: 8 u + 16 u; roundings 2 u + 6 u.
  EXPECT_GE(x.bound, 32 * 0x1p-24);
  EXPECT_LE(x.bound, 32.01 * 0x1p-24);
}

TEST(Fp8GemmReference, InfinitiesAreExact) {
  Case c(1, 2, 1, -1);
  c.desc.weights = DType::kE5M2;
  c.a = {-3, 5};
  c.code = {0x7c, 0x3c};
  EXPECT_EQ(c.exact().value, -kInf);
  EXPECT_EQ(c.exact().bound, 0);
  EXPECT_FALSE(accepts(c.exact(), DType::kF32, 5.0));
  c.a = {0, 5};
  EXPECT_TRUE(std::isnan(c.exact().value));  // 0 * inf
  c.a = {1, 0x1p127};
  EXPECT_EQ(c.exact().bound, kInf);  // the other column alone may overflow
}

TEST(Fp8GemmReference, NaNStaysInItsRowOrColumn) {
  Case c(2, 2, 1, 1);
  c.m = 2;
  c.a = {std::nan(""), 1, 1, 1};
  c.code.assign(4, kOne);
  std::vector<float> r = c.run();
  EXPECT_TRUE(std::isnan(r[0]) && std::isnan(r[1]));
  EXPECT_EQ(r[2], 2.0f);
  c.a[0] = 1;
  c.code[2] = 0x7f;
  r = c.run();
  EXPECT_TRUE(std::isnan(r[1]) && std::isnan(r[3]));
  EXPECT_EQ(r[0], 2.0f);
}

TEST(Fp8GemmReference, EpilogueStepsFollowTheBlocks) {
  Case c(1, 1, 1, 1);
  c.desc.epilogue.bias = true;
  c.desc.epilogue.residual = true;
  c.a = {127};
  c.code = {kOne};
  c.bias = {-27.0f};
  c.residual = {0.5f};
  EXPECT_EQ(c.run()[0], 100.5f);
  c.desc.epilogue = {true, Activation::kSiluMul, false};
  c.up_code = {kTwo};
  c.up_scale = {3};
  c.bias = {-126.0f, -758.0f};
  EXPECT_NEAR(c.run()[0], 4 * 0.7310585786300049, 1e-6);  // silu(1) * (127 * 2 * 3 - 758)
}

TEST(Fp8GemmReference, EmptyDepthIsZeroPlusEpilogue) {
  for (const int64_t block : {int64_t{128}, int64_t{-1}}) {
    Case c(2, 0, block, block);
    c.desc.epilogue.bias = true;
    c.bias = {3, -4};
    EXPECT_EQ(c.run(), (std::vector<float>{3, -4}));
  }
}

TEST(Fp8GemmReference, RefusesWhatDoesNotFit) {
  Case c(3, 5, 2, 4);
  c.a.assign(5, 1);
  c.code.assign(15, kOne);
  const auto refused = [&](auto change) {
    Fp8GemmArgs args = c.args();
    Fp8GemmDesc desc = c.desc;
    change(desc, args);
    return fp8_gemm(desc, args).code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](Fp8GemmDesc&, Fp8GemmArgs& r) { r.weights.scale = MatrixView(); }));
  EXPECT_TRUE(refused([](Fp8GemmDesc&, Fp8GemmArgs& r) { r.weights.scale.rows = 1; }));
  EXPECT_TRUE(refused([](Fp8GemmDesc&, Fp8GemmArgs& r) { r.weights.scale.cols = 1; }));
  EXPECT_TRUE(refused([](Fp8GemmDesc&, Fp8GemmArgs& r) { r.weights.scale.data = nullptr; }));
  EXPECT_TRUE(refused([](Fp8GemmDesc&, Fp8GemmArgs& r) { r.weights.scale.dtype = DType::kS32; }));
  EXPECT_TRUE(refused([](Fp8GemmDesc&, Fp8GemmArgs& r) { r.weights.codes.dtype = DType::kS8; }));
  EXPECT_TRUE(refused([](Fp8GemmDesc&, Fp8GemmArgs& r) { r.weights.codes.rows = 2; }));
  EXPECT_TRUE(refused([](Fp8GemmDesc&, Fp8GemmArgs& r) { r.a.cols = 4; }));
  EXPECT_TRUE(refused([](Fp8GemmDesc& d, Fp8GemmArgs&) { d.block_n = 0; }));
  EXPECT_TRUE(refused([](Fp8GemmDesc& d, Fp8GemmArgs&) { d.block_k = -2; }));
  EXPECT_TRUE(refused([](Fp8GemmDesc& d, Fp8GemmArgs& r) {
    d.weights = DType::kS8;
    r.weights.codes.dtype = DType::kS8;
  }));
  EXPECT_TRUE(refused([](Fp8GemmDesc& d, Fp8GemmArgs& r) {
    d.epilogue.activation = Activation::kSiluMul;
    r.up_weights.scale = MatrixView();
  }));
  EXPECT_FALSE(refused([](Fp8GemmDesc&, Fp8GemmArgs&) {}));
}

}  // namespace
}  // namespace quern::reference
