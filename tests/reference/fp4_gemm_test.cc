#include "reference/fp4_gemm.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/bf16_gemm.h"
#include "reference/numeric.h"

namespace quern::reference {
namespace {

constexpr std::array<double, 16> kE2M1 = {0,   0.5,  1,  1.5,  2,  3,  4,  6,
                                          -0., -0.5, -1, -1.5, -2, -3, -4, -6};
constexpr uint8_t kE4M3One = 0x38, kE8M0One = 127;

struct Case {
  Fp4GemmDesc desc;
  int64_t m = 1;
  std::vector<double> a;               ///< [m, k], rounded to bf16
  std::vector<uint8_t> code, up_code;  ///< [n, k], one code a byte
  std::vector<uint8_t> scale, up_scale;
  float global = 1, up_global = 1;
  Fp4Global global_is = Fp4Global::kMultiplier;
  std::vector<float> bias, residual;
  std::vector<float> c;
  std::vector<uint16_t> a_bits;
  std::vector<uint8_t> packed, up_packed;

  Case(int64_t n, int64_t k, Fp4Format format) {
    desc.n = n;
    desc.k = k;
    desc.format = format;
    desc.c = DType::kF32;
    scale.assign(static_cast<size_t>(n * blocks()), nvfp4() ? kE4M3One : kE8M0One);
    up_scale = scale;
  }
  bool nvfp4() const { return desc.format == Fp4Format::kNvfp4; }
  int64_t blocks() const { return nvfp4() ? (desc.k + 15) / 16 : (desc.k + 31) / 32; }
  /// Low nibble first; the unused nibble of an odd row holds 6, which would be seen.
  std::vector<uint8_t> pairs(const std::vector<uint8_t>& codes) const {
    std::vector<uint8_t> out;
    for (int64_t n = 0; n < desc.n; ++n) {
      for (int64_t k = 0; k < desc.k; k += 2) {
        const size_t at = static_cast<size_t>(n * desc.k + k);
        const int high = k + 1 < desc.k ? codes[at + 1] : 7;
        out.push_back(static_cast<uint8_t>(codes[at] | high << 4));
      }
    }
    return out;
  }
  Fp4Weights weights(const std::vector<uint8_t>& bytes, const std::vector<uint8_t>& scales,
                     const float& global_scale) const {
    Fp4Weights w;
    w.codes = matrix_view(bytes.data(), desc.n, (desc.k + 1) / 2);
    w.scale = {scales.data(), nvfp4() ? DType::kE4M3 : DType::kE8M0, desc.n, blocks(), blocks()};
    if (nvfp4()) w.global = vector_view(&global_scale, 1);
    w.global_is = global_is;
    return w;
  }
  Fp4GemmArgs args() {
    a_bits.clear();
    for (const double x : a) a_bits.push_back(bf16_from_double(x));
    packed = pairs(code);
    Fp4GemmArgs r;
    r.a = {a_bits.data(), DType::kBF16, m, desc.k, desc.k};
    r.weights = weights(packed, scale, global);
    r.up_weights = r.weights;
    if (!up_code.empty()) {
      up_packed = pairs(up_code);
      r.up_weights = weights(up_packed, up_scale, up_global);
    }
    c.assign(static_cast<size_t>(m * desc.n), -1.0f);
    r.c = mutable_matrix_view(c.data(), m, desc.n);
    r.bias = vector_view(bias.data(), static_cast<int64_t>(bias.size()));
    r.residual = matrix_view(residual.data(), m, desc.n);
    return r;
  }
  std::vector<float> run() {
    const Fp4GemmArgs r = args();
    EXPECT_TRUE(fp4_gemm(desc, r).ok());
    return c;
  }
  Bounded exact() { return fp4_gemm_exact(desc, args()).at(0, 0); }
};

constexpr Fp4Format kBoth[] = {Fp4Format::kNvfp4, Fp4Format::kMxfp4};

TEST(Fp4GemmReference, EveryE2M1Code) {
  for (const Fp4Format format : kBoth) {
    Case c(16, 1, format);
    c.a = {1};
    for (uint8_t code = 0; code < 16; ++code) c.code.push_back(code);
    const std::vector<float> r = c.run();
    for (size_t code = 0; code < 16; ++code) EXPECT_EQ(r[code], kE2M1[code]) << code;
  }
}

TEST(Fp4GemmReference, EveryE8M0Scale) {
  Case c(255, 1, Fp4Format::kMxfp4);
  c.a = {1};
  c.code.assign(255, 2);
  for (size_t code = 0; code < 255; ++code) c.scale[code] = static_cast<uint8_t>(code);
  const std::vector<float> r = c.run();
  float expected = 0x1p-127f;
  for (size_t code = 0; code < 255; ++code, expected *= 2) EXPECT_EQ(r[code], expected) << code;
  EXPECT_TRUE(std::isnan(e8m0_to_double(255)));
}

TEST(Fp4GemmReference, EveryE4M3BlockScale) {
  // Positive codes ascend in steps of 2^-9, which double with each exponent from 2^-5 on.
  Case c(254, 1, Fp4Format::kNvfp4);
  c.a = {1};
  c.code.assign(254, 3);
  std::vector<double> expected;
  double value = 0, step = 0x1p-9;
  for (int code = 0; code < 127; ++code) {
    c.scale[expected.size()] = static_cast<uint8_t>(code);
    expected.push_back(1.5 * value);
    c.scale[expected.size()] = static_cast<uint8_t>(code | 0x80);
    expected.push_back(-1.5 * value);
    if (code >= 16 && code % 8 == 0) step *= 2;
    value += step;
  }
  const std::vector<float> r = c.run();
  for (size_t i = 0; i < r.size(); ++i) EXPECT_EQ(r[i], expected[i]) << int{c.scale[i]};
}

TEST(Fp4GemmReference, TheLowNibbleIsTheEvenColumn) {
  for (const Fp4Format format : kBoth) {
    Case c(2, 3, format);
    c.a = {1, 10, 100};
    c.code = {1, 2, 4, 7, 15, 3};
    // 0.5 + 10 + 200; 6 - 60 + 150
    EXPECT_EQ(c.run(), (std::vector<float>{210.5f, 96.0f}));
  }
}

TEST(Fp4GemmReference, EveryBlockHasItsOwnScale) {
  Case nv(1, 33, Fp4Format::kNvfp4);
  nv.a.assign(33, 1);
  nv.code.assign(33, 2);
  nv.scale = {0x38, 0x40, 0x48};  // 1, 2, 4
  nv.global = 0.25f;
  EXPECT_EQ(nv.run()[0], 0.25f * (16 + 32 + 4));
  Case mx(1, 65, Fp4Format::kMxfp4);
  mx.a.assign(65, 1);
  mx.code.assign(65, 2);
  mx.scale = {127, 128, 126};
  EXPECT_EQ(mx.run()[0], 32 + 64 + 0.5f);
}

TEST(Fp4GemmReference, TheGlobalScaleActsBeforeTheBias) {
  Case c(1, 1, Fp4Format::kNvfp4);
  c.desc.epilogue.bias = true;
  c.desc.epilogue.residual = true;
  c.a = {3};
  c.code = {4};
  c.global = 10;
  c.bias = {-2};
  c.residual = {0.5f};
  EXPECT_EQ(c.run()[0], 58.5f);
}

TEST(Fp4GemmReference, ADivisorIsRoundedToAMultiplier) {
  Case c(1, 1, Fp4Format::kNvfp4);
  c.a = {1};
  c.code = {2};
  c.global = 3;
  c.global_is = Fp4Global::kDivisor;
  EXPECT_EQ(c.run()[0], 0x1.555556p-2f);
  c.a = {3};  // 3 (1 / 3) is above one; dividing at the end would give 1
  EXPECT_GT(c.exact().value, 1.0);
}

TEST(Fp4GemmReference, NvFp4HasTheSumsOfBF16Weights) {
  Case c(3, 40, Fp4Format::kNvfp4);
  c.m = 2;
  std::vector<uint16_t> w;
  for (int64_t i = 0; i < 80; ++i) c.a.push_back(std::ldexp(static_cast<double>(i * 37 % 19), -3));
  for (size_t i = 0; i < c.scale.size(); ++i) {
    c.scale[i] = static_cast<uint8_t>(i * 41 % 127);
  }
  for (int64_t i = 0; i < 120; ++i) {
    c.code.push_back(static_cast<uint8_t>(i * 7 % 16));
    const double block = e4m3_to_double(c.scale[static_cast<size_t>(i / 40 * 3 + i % 40 / 16)]);
    w.push_back(bf16_from_double(kE2M1[c.code.back()] * block));
    ASSERT_EQ(bf16_to_double(w.back()), kE2M1[c.code.back()] * block);
  }
  const Fp4GemmArgs args = c.args();
  Bf16GemmDesc desc;
  desc.n = 3;
  desc.k = 40;
  Bf16GemmArgs bf16;
  bf16.a = args.a;
  bf16.weights = {w.data(), DType::kBF16, 3, 40, 40};
  const Exact expected = bf16_gemm_exact(desc, bf16), actual = fp4_gemm_exact(c.desc, args);
  for (size_t i = 0; i < expected.element.size(); ++i) {
    EXPECT_EQ(actual.element[i].value, expected.element[i].value);
    // One product more, here with 1.
    EXPECT_GE(actual.element[i].bound, expected.element[i].bound);
    EXPECT_LE(
        actual.element[i].bound,
        expected.element[i].bound + std::fabs(expected.element[i].value) * 0x1.01p-24 + 1e-30);
  }
}

TEST(Fp4GemmReference, MxFp4HasTheBoundOfItsBlocks) {
  Case c(1, 64, Fp4Format::kMxfp4);
  c.a.assign(64, 1);
  c.code.assign(64, 2);
  c.scale = {127, 128};
  const Bounded x = c.exact();
  EXPECT_EQ(x.value, 96.0);
  // Chains of 32: 2 * 32 u * 32 = 2048 u, times 1 and 2; roundings 32 u and 96 u.
  EXPECT_GE(x.bound, 6272 * 0x1p-24);
  EXPECT_LE(x.bound, 6272.1 * 0x1p-24);
}

TEST(Fp4GemmReference, SiluMulOfPartsWithScalesOfTheirOwn) {
  for (const Fp4Format format : kBoth) {
    Case c(1, 1, format);
    c.desc.epilogue.activation = Activation::kSiluMul;
    c.a = {1};
    c.code = {2};
    c.up_code = {5};
    if (format == Fp4Format::kNvfp4) {
      c.global = 1;
      c.up_global = 16;
    } else {
      c.up_scale = {131};
    }
    EXPECT_NEAR(c.run()[0], 48 * 0.7310585786300049, 1e-4);
  }
}

TEST(Fp4GemmReference, EmptyDepthIsZeroPlusEpilogue) {
  for (const Fp4Format format : kBoth) {
    Case c(2, 0, format);
    c.desc.epilogue.bias = true;
    c.bias = {3, -4};
    EXPECT_EQ(c.run(), (std::vector<float>{3, -4}));
  }
}

TEST(Fp4GemmReference, NaNAmongTheScalesIsNamed) {
  Case nv(2, 20, Fp4Format::kNvfp4);
  nv.a.assign(20, 1);
  nv.code.assign(40, 2);
  for (const uint8_t nan : {uint8_t{0x7f}, uint8_t{0xff}}) {
    nv.scale[3] = nan;
    const Status s = fp4_gemm(nv.desc, nv.args());
    EXPECT_EQ(s.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(s.message().find("[1, 1]"), std::string::npos) << s.message();
  }
  Case mx(1, 33, Fp4Format::kMxfp4);
  mx.a.assign(33, 1);
  mx.code.assign(33, 2);
  mx.scale[1] = 255;
  EXPECT_EQ(fp4_gemm(mx.desc, mx.args()).code(), StatusCode::kInvalidArgument);
}

TEST(Fp4GemmReference, RefusesWhatDoesNotFit) {
  const auto refused = [](Fp4Format format, auto change) {
    Case c(2, 20, format);
    c.a.assign(20, 1);
    c.code.assign(40, 2);
    Fp4GemmArgs args = c.args();
    change(args);
    return fp4_gemm(c.desc, args).code() == StatusCode::kInvalidArgument;
  };
  for (const Fp4Format format : kBoth) {
    EXPECT_FALSE(refused(format, [](Fp4GemmArgs&) {}));
    EXPECT_TRUE(refused(format, [](Fp4GemmArgs& r) { r.weights.codes.cols = 20; }));
    EXPECT_TRUE(refused(format, [](Fp4GemmArgs& r) { r.weights.codes.dtype = DType::kS8; }));
    EXPECT_TRUE(refused(format, [](Fp4GemmArgs& r) { r.weights.scale.cols += 1; }));
    EXPECT_TRUE(refused(format, [](Fp4GemmArgs& r) { r.weights.scale.data = nullptr; }));
    EXPECT_TRUE(refused(format, [](Fp4GemmArgs& r) { r.weights.scale.dtype = DType::kU8; }));
    EXPECT_TRUE(refused(format, [](Fp4GemmArgs& r) { r.a.cols = 4; }));
  }
  const float one = 1;
  EXPECT_TRUE(
      refused(Fp4Format::kMxfp4, [&](Fp4GemmArgs& r) { r.weights.global = vector_view(&one, 1); }));
  EXPECT_TRUE(refused(Fp4Format::kMxfp4, [](Fp4GemmArgs& r) { r.weights.global.size = 1; }));
  EXPECT_TRUE(refused(Fp4Format::kMxfp4,
                      [](Fp4GemmArgs& r) { r.weights.global_is = Fp4Global::kDivisor; }));
  EXPECT_TRUE(refused(Fp4Format::kNvfp4, [](Fp4GemmArgs& r) { r.weights.global = VectorView(); }));
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {0.0f, -1.0f, inf, std::nanf("")}) {
    EXPECT_TRUE(refused(Fp4Format::kNvfp4,
                        [&](Fp4GemmArgs& r) { r.weights.global = vector_view(&bad, 1); }));
  }
  const float tiny = 0x1p-130f;  // 1 / 2^-130 is no f32 number
  EXPECT_TRUE(refused(Fp4Format::kNvfp4, [&](Fp4GemmArgs& r) {
    r.weights.global = vector_view(&tiny, 1);
    r.weights.global_is = Fp4Global::kDivisor;
  }));
}

}  // namespace
}  // namespace quern::reference
