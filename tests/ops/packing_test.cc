// The packed layouts, byte by byte, against the sentences that define them in packed_weights.h.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "quern/bf16_gemm.h"
#include "quern/int8_gemm.h"
#include "tests/ops/test_pools.h"

namespace quern {
namespace {

uint8_t byte_at(const PackedWeights& w, int64_t at) {
  return static_cast<uint8_t>(w.data()[at]);
}

class Packing : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Context().isa() < IsaLevel::kAvx512) GTEST_SKIP() << "not run: plans need AVX-512";
  }
};

TEST_F(Packing, Int8PanelsScalesAndPadding) {
  constexpr int kN = 19, kK = 6;
  Int8GemmDesc desc;
  desc.n = kN;
  desc.k = kK;
  const auto gemm = Int8Gemm::create(Context(), desc);
  ASSERT_TRUE(gemm.ok()) << gemm.status().message();
  std::vector<int8_t> codes;
  std::vector<float> scale;
  for (int n = 0; n < kN; ++n) {
    scale.push_back(static_cast<float>(n + 1));
    for (int k = 0; k < kK; ++k) codes.push_back(static_cast<int8_t>(n * 13 + k * 7 - 128));
  }
  const auto w = gemm->pack({matrix_view(codes.data(), kN, kK), vector_view(scale.data(), kN)});
  ASSERT_TRUE(w.ok()) << w.status().message();
  EXPECT_EQ(w->layout(), WeightLayout::kU8Vnni4N16);
  EXPECT_STREQ(to_string(w->layout()), "u8.vnni4.n16.v2");
  EXPECT_EQ(w->panel_bytes(), 16 * 64);
  EXPECT_EQ(w->bytes(), 2u * 16 * 64 + 32 * sizeof(float));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(w->data()) % 64, 0u);
  for (int n = 0; n < 32; ++n) {
    for (int k = 0; k < 64; ++k) {
      const bool exists = n < kN && k < kK;
      const int want = exists ? codes[static_cast<size_t>(n * kK + k)] + 128 : 128;
      ASSERT_EQ(byte_at(*w, n / 16 * 1024 + k / 4 * 64 + n % 16 * 4 + k % 4), want)
          << n << ' ' << k;
    }
    ASSERT_EQ(w->scales()[n], n < kN ? static_cast<float>(n + 1) : 0.0f);
  }
}

TEST_F(Packing, Bf16GateAndUpPanelsAlternate) {
  constexpr int kN = 17, kK = 3;
  Bf16GemmDesc desc;
  desc.n = kN;
  desc.k = kK;
  desc.epilogue.activation = Activation::kSiluMul;
  const auto gemm = Bf16Gemm::create(Context(), desc);
  if (!gemm.ok()) GTEST_SKIP() << "not run: " << gemm.status().message();
  std::vector<bfloat16> part[2];
  for (int p = 0; p < 2; ++p) {
    for (int i = 0; i < kN * kK; ++i) {
      part[p].push_back({static_cast<uint16_t>(0x4000 + 0x1000 * p + i)});
    }
  }
  const auto w =
      gemm->pack_gate_up(matrix_view(part[0].data(), kN, kK), matrix_view(part[1].data(), kN, kK));
  ASSERT_TRUE(w.ok()) << w.status().message();
  EXPECT_EQ(w->layout(), WeightLayout::kBf16Vnni2N16GateUp);
  EXPECT_EQ(w->panel_bytes(), 16 * 64);
  EXPECT_EQ(w->bytes(), 4u * 16 * 64);
  EXPECT_EQ(w->scales(), nullptr);
  for (int p = 0; p < 2; ++p) {
    for (int n = 0; n < 32; ++n) {
      for (int k = 0; k < 32; ++k) {
        uint16_t got;
        const int64_t at = (n / 16 * 2 + p) * 1024 + k / 2 * 64 + n % 16 * 4 + k % 2 * 2;
        std::memcpy(&got, w->data() + at, 2);
        const bool exists = n < kN && k < kK;
        ASSERT_EQ(got, exists ? part[p][static_cast<size_t>(n * kK + k)].bits : 0) << p << ' ' << n;
      }
    }
  }
  EXPECT_EQ(gemm->pack(matrix_view(part[0].data(), kN, kK)).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(Packing, F16AndBf16ScalesConvertExactly) {
  Int8GemmDesc desc;
  desc.n = 8;
  desc.k = 1;
  const auto gemm = Int8Gemm::create(Context(), desc);
  ASSERT_TRUE(gemm.ok());
  const int8_t codes[8] = {};
  // 1, 65504, the smallest normal and subnormal, -2, 0, infinity, 1 + 2^-10.
  const uint16_t f16[8] = {0x3c00, 0x7bff, 0x0400, 0x0001, 0xc000, 0x0000, 0x7c00, 0x3c01};
  const float want[8] = {1.0f, 65504.0f, 0x1p-14f, 0x1p-24f, -2.0f, 0.0f, INFINITY, 1.0009765625f};
  const auto w = gemm->pack({matrix_view(codes, 8, 1), {f16, DType::kF16, 8}});
  ASSERT_TRUE(w.ok());
  for (int i = 0; i < 8; ++i) EXPECT_EQ(w->scales()[i], want[i]) << i;
  const bfloat16 bf16[8] = {{0x3f80}, {0x0001}, {0x7f7f}, {0x8000}, {0}, {0}, {0}, {0xbf80}};
  const auto v = gemm->pack({matrix_view(codes, 8, 1), vector_view(bf16, 8)});
  ASSERT_TRUE(v.ok());
  for (int i = 0; i < 8; ++i) EXPECT_EQ(v->scales()[i], bf16[i].to_float()) << i;
}

TEST_F(Packing, BytesDoNotDependOnThreads) {
  Bf16GemmDesc desc;
  desc.n = 1000;
  desc.k = 77;
  std::vector<bfloat16> weights(1000 * 77);
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i].bits = static_cast<uint16_t>(i * 2654435761u);
  std::vector<std::byte> first;
  for (int threads : {1, 2, 3, 16, 100}) {
    test::ScriptedPool pool(threads);
    const auto gemm = Bf16Gemm::create(Context(&pool), desc);
    if (!gemm.ok()) GTEST_SKIP() << "not run: " << gemm.status().message();
    const auto w = gemm->pack(matrix_view(weights.data(), 1000, 77));
    ASSERT_TRUE(w.ok());
    const std::vector<std::byte> bytes(w->data(), w->data() + w->bytes());
    if (first.empty()) first = bytes;
    ASSERT_TRUE(bytes == first) << threads;
  }
}

}  // namespace
}  // namespace quern
