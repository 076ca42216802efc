#include "reference/bf16_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "reference/dot_products.h"
#include "reference/linear.h"
#include "reference/numeric.h"

namespace quern::reference {
namespace {

std::vector<uint16_t> bf16(const std::vector<double>& values) {
  std::vector<uint16_t> out;
  for (const double v : values) out.push_back(bf16_from_double(v));
  return out;
}
MatrixView view(const std::vector<uint16_t>& data, int64_t rows, int64_t cols) {
  return {data.data(), DType::kBF16, rows, cols, cols};
}

double product(const std::vector<double>& a, const std::vector<double>& w, DType c_type) {
  const int64_t k = static_cast<int64_t>(a.size());
  Bf16GemmDesc desc;
  desc.n = 1;
  desc.k = k;
  desc.c = c_type;
  const std::vector<uint16_t> a16 = bf16(a), w16 = bf16(w);
  uint32_t storage = 0;
  Bf16GemmArgs args;
  args.a = view(a16, 1, k);
  args.weights = view(w16, 1, k);
  args.c = {&storage, c_type, 1, 1, 1};
  EXPECT_TRUE(bf16_gemm(desc, args).ok());
  return load(&storage, c_type, 0);
}

TEST(Bf16Gemm, OnesGiveKRoundedOnce) {  // bug_log B20, B21
  EXPECT_EQ(product(std::vector<double>(4, 1), std::vector<double>(4, 1), DType::kBF16), 4);
  for (const auto& [k, expected] :
       {std::pair{255, 255.0}, {256, 256.0}, {257, 256.0}, {1024, 1024.0}, {4096, 4096.0}}) {
    const std::vector<double> ones(static_cast<size_t>(k), 1);
    EXPECT_EQ(product(ones, ones, DType::kBF16), expected);
    EXPECT_EQ(product(ones, ones, DType::kF32), k);
  }
}

TEST(Bf16Gemm, OneRoundingAtTheEnd) {
  // 1 + 2^-8 is a tie in bf16 and 2^-40 decides it: any earlier rounding would lose the decision.
  EXPECT_EQ(product({1, 0x1p-8, 0x1p-40}, {1, 1, 1}, DType::kBF16), 1.0078125);
  EXPECT_EQ(product({1, 0x1p-8}, {1, 1}, DType::kBF16), 1.0);
  // Cancellation of large terms leaves the small one.
  EXPECT_EQ(product({0x1p40, 3, -0x1p40}, {1, 1, 1}, DType::kF32), 3.0);
}

TEST(Bf16Gemm, MultipliesRowsByRowsOfTheWeights) {
  Bf16GemmDesc desc;
  desc.n = 2;
  desc.k = 2;
  desc.c = DType::kF32;
  desc.epilogue.bias = true;
  desc.epilogue.residual = true;
  const std::vector<uint16_t> a = bf16({1, 2, 3, 4}), w = bf16({5, 6, 7, 8});
  const std::vector<float> bias = {0.5f, -0.5f};
  std::vector<float> c = {100, 200, 300, 400};
  Bf16GemmArgs args;
  args.a = view(a, 2, 2);
  args.weights = view(w, 2, 2);
  args.bias = vector_view(bias.data(), 2);
  args.c = mutable_matrix_view(c.data(), 2, 2);
  args.residual = args.c;  // in place
  ASSERT_TRUE(bf16_gemm(desc, args).ok());
  EXPECT_EQ(c, (std::vector<float>{117.5f, 222.5f, 339.5f, 452.5f}));
}

TEST(Bf16Gemm, SiluMul) {
  Bf16GemmDesc desc;
  desc.n = 1;
  desc.k = 1;
  desc.epilogue.activation = Activation::kSiluMul;
  desc.epilogue.residual = true;
  const std::vector<uint16_t> a = bf16({1}), gate = bf16({1}), up = bf16({2});
  const float residual = 10;
  Bf16GemmArgs args;
  args.a = view(a, 1, 1);
  args.weights = view(gate, 1, 1);
  args.up_weights = view(up, 1, 1);
  args.residual = matrix_view(&residual, 1, 1);
  EXPECT_NEAR(bf16_gemm_exact(desc, args).at(0, 0).value, 11.46211715726001, 1e-14);
}

TEST(Bf16Gemm, BoundIsTwiceKTimesTheUnitRoundoff) {
  const std::vector<uint16_t> a = bf16({3, -5, 7}), w = bf16({2, 4, -6});
  const DotProducts d = dot_products(view(a, 1, 3), view(w, 1, 3));
  EXPECT_EQ(d.value[0], -56);
  EXPECT_EQ(d.magnitude[0], 68);
  Bf16GemmDesc desc;
  desc.n = 1;
  desc.k = 3;
  Bf16GemmArgs args;
  args.a = view(a, 1, 3);
  args.weights = view(w, 1, 3);
  EXPECT_NEAR(bf16_gemm_exact(desc, args).at(0, 0).bound, 408 * 0x1p-24, 1e-30);
}

TEST(Bf16Gemm, SubnormalsCountAsZeroAndBf16ResultsToo) {
  EXPECT_EQ(product({0x1p-130, 1}, {0x1p100, 1}, DType::kF32), 1.0);
  EXPECT_EQ(product({0x1p-126}, {0.5}, DType::kF32), 0x1p-127);  // an f32 result keeps it
  EXPECT_EQ(product({0x1p-126}, {0.5}, DType::kBF16), 0.0);
}

TEST(Linear, TakesEveryValueAsItIs) {
  const std::vector<float> a = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  std::vector<float> w(20, 1.0f);
  w[10] = 0x1p24f;
  const std::vector<float> bias = {0.5f, -0x1p24f};
  std::vector<float> c(2);
  LinearArgs args;
  args.a = matrix_view(a.data(), 1, 10);
  args.weights = matrix_view(w.data(), 2, 10);
  args.bias = vector_view(bias.data(), 2);
  args.c = mutable_matrix_view(c.data(), 1, 2);
  ASSERT_TRUE(linear(args).ok());
  EXPECT_EQ(c[0], 55.5f);
  EXPECT_EQ(c[1], 54.0f);                        // 2^24 + 54 - 2^24: nothing lost on the way
  const std::vector<uint16_t> tiny(10, 0x0001);  // bf16 subnormals count here
  args.a = view(tiny, 1, 10);
  args.bias = VectorView();
  ASSERT_TRUE(linear(args).ok());
  EXPECT_EQ(c[0], 10 * 0x1p-133f);
  args.c.cols = 3;
  EXPECT_EQ(linear(args).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quern::reference
