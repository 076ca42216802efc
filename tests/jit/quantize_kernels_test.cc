// The row quantizer alone, registers poisoned: literal values and every tail.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "jit/quantize_rows_avx512.h"
#include "tests/jit/kernel_fixture.h"

namespace quern::jit {
namespace {

class QuantizeKernels : public KernelTest {};

struct Quantized {
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int32_t> sums;
};

template <typename T>
Quantized run(const Kernel& kernel, const std::vector<T>& a, int rows, int k, int group, int pad) {
  const int width = (k + pad - 1) / pad * pad + 5;
  const int groups = std::max(1, (k + group - 1) / group);
  Quantized out{std::vector<int8_t>(static_cast<size_t>(rows * width), 99),
                std::vector<float>(static_cast<size_t>(rows)),
                std::vector<int32_t>(static_cast<size_t>(rows * groups), 12345)};
  QuantizeRowsArgs args;
  args.a = a.data();
  args.a_stride = k * static_cast<int>(sizeof(T));
  args.rows = rows;
  args.k = k;
  args.group = group;
  args.q = out.q.data();
  args.q_stride = width;
  args.scale = out.scale.data();
  args.sums = out.sums.data();
  args.sum_stride = groups * 4;
  kernel.call(args);
  return out;
}

TEST_F(QuantizeKernels, LiteralRow) {
  const KernelHandle kernel = make(QuantizeRowsAvx512Config{DType::kF32, 4, true});
  // amax 127: the scale is 1 and q is x rounded to nearest even.
  const std::vector<float> a = {127.0f, -126.6f, 0.5f, 1.5f, -2.5f};
  const Quantized out = run(*kernel, a, 1, 5, 5, 4);
  const std::vector<int8_t> want = {127, -127, 0, 2, -2, 0, 0, 0, 99, 99, 99, 99, 99};
  EXPECT_EQ(out.q, want);
  EXPECT_EQ(out.scale[0], 1.0f);
  EXPECT_EQ(out.sums[0], 0);
}

TEST_F(QuantizeKernels, ZeroAndTinyRowsAreFinite) {
  const KernelHandle kernel = make(QuantizeRowsAvx512Config{DType::kF32, 1, true});
  const float tiny = std::numeric_limits<float>::denorm_min();
  const std::vector<float> a = {0, -0.0f, 0, tiny, tiny, tiny};
  const Quantized out = run(*kernel, a, 2, 3, 3, 1);
  for (int row = 0; row < 2; ++row) {
    EXPECT_EQ(out.scale[static_cast<size_t>(row)], 1e-10f / 127.0f);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(out.q[static_cast<size_t>(row * 8 + i)], 0);
  }
}

TEST_F(QuantizeKernels, RowsWithNanOrInfinityArePoisonedAloneAndWhole) {
  const float nan = std::nanf(""), inf = INFINITY;
  for (DType type : {DType::kF32, DType::kBF16}) {
    const KernelHandle kernel = make(QuantizeRowsAvx512Config{type, 4, true});
    for (float bad : {nan, -nan, inf, -inf}) {
      for (int k : {1, 15, 16, 17, 33, 70}) {
        for (int at : {0, k / 2, k - 1}) {
          std::vector<float> a(static_cast<size_t>(3 * k), 2.0f);
          a[static_cast<size_t>(k + at)] = bad;
          std::vector<uint16_t> half;
          for (float x : a) half.push_back(bf16_bits(x));
          const Quantized out =
              type == DType::kF32 ? run(*kernel, a, 3, k, 16, 4) : run(*kernel, half, 3, k, 16, 4);
          const int width = (k + 3) / 4 * 4 + 5;
          const int groups = (k + 15) / 16;
          EXPECT_EQ(out.scale[0], 2.0f / 127.0f);
          EXPECT_TRUE(std::isnan(out.scale[1]));
          EXPECT_EQ(out.scale[2], 2.0f / 127.0f);
          for (int i = 0; i < (k + 3) / 4 * 4; ++i) {
            ASSERT_EQ(out.q[static_cast<size_t>(i)], i < k ? 127 : 0);
            ASSERT_EQ(out.q[static_cast<size_t>(width + i)], 0) << k << ' ' << at;
            ASSERT_EQ(out.q[static_cast<size_t>(2 * width + i)], i < k ? 127 : 0);
          }
          for (int g = 0; g < groups; ++g) {
            ASSERT_EQ(out.sums[static_cast<size_t>(groups + g)], 0);
            ASSERT_EQ(out.sums[static_cast<size_t>(2 * groups + g)],
                      127 * std::min(16, k - 16 * g));
          }
        }
      }
    }
  }
}

// Integers up to 127 with one 127 in every row: scale 1, so q is the value. Groups and padding of
// every size; bytes behind the padding keep their canary.
TEST_F(QuantizeKernels, EveryTailGroupAndPad) {
  Numbers numbers(7);
  for (DType type : {DType::kF32, DType::kBF16, DType::kS8}) {
    for (int pad : {1, 4, 64}) {
      const KernelHandle kernel = make(QuantizeRowsAvx512Config{type, pad, true});
      for (int k = 1; k <= 140; ++k) {
        const int group = 1 + static_cast<int>(numbers.next() % static_cast<uint64_t>(k + 3));
        std::vector<int8_t> s8(static_cast<size_t>(2 * k));
        for (int8_t& x : s8) x = static_cast<int8_t>(static_cast<int>(numbers.next() % 255) - 127);
        s8[0] = 127;
        s8[static_cast<size_t>(2 * k - 1)] = -127;
        const std::vector<float> f32(s8.begin(), s8.end());
        std::vector<uint16_t> bf16;
        for (float x : f32) bf16.push_back(bf16_bits(x));
        const Quantized out = type == DType::kF32    ? run(*kernel, f32, 2, k, group, pad)
                              : type == DType::kBF16 ? run(*kernel, bf16, 2, k, group, pad)
                                                     : run(*kernel, s8, 2, k, group, pad);
        const int padded = (k + pad - 1) / pad * pad;
        const int groups = (k + group - 1) / group;
        for (int row = 0; row < 2; ++row) {
          for (int i = 0; i < padded + 5; ++i) {
            const int want = i >= padded ? 99 : i >= k ? 0 : s8[static_cast<size_t>(row * k + i)];
            ASSERT_EQ(out.q[static_cast<size_t>(row * (padded + 5) + i)], want)
                << kernel->name << " k " << k << " row " << row << " at " << i;
          }
          for (int g = 0; g < groups; ++g) {
            int want = 0;
            for (int i = g * group; i < std::min(k, (g + 1) * group); ++i) {
              want += s8[static_cast<size_t>(row * k + i)];
            }
            ASSERT_EQ(out.sums[static_cast<size_t>(row * groups + g)], want)
                << kernel->name << " k " << k << " group " << group;
          }
        }
      }
    }
  }
}

// Quads change where bytes stand and nothing else: of each four, the second and the third are
// exchanged. k and groups are multiples of four then.
TEST_F(QuantizeKernels, QuadsExchangeTheMiddleBytes) {
  Numbers numbers(8);
  const auto any = [&numbers] { return static_cast<float>(static_cast<int8_t>(numbers.next())); };
  for (DType type : {DType::kF32, DType::kBF16}) {
    for (int pad : {1, 4, 64}) {
      const KernelHandle plain = make(QuantizeRowsAvx512Config{type, pad, true});
      const KernelHandle quads = make(QuantizeRowsAvx512Config{type, pad, true, true});
      for (int k = 4; k <= 280; k += 4) {
        for (const int group : {4, 8, 28, 64, 68, 128, 284}) {
          std::vector<float> f32;
          for (int i = 0; i < 3 * k; ++i) f32.push_back(any());
          if (k % 12 == 0) f32[static_cast<size_t>(k + k / 2)] = std::nanf("");
          std::vector<uint16_t> bf16;
          for (float x : f32) bf16.push_back(bf16_bits(x));
          const auto quantize = [&](const Kernel& kernel) {
            return type == DType::kF32 ? run(kernel, f32, 3, k, group, pad)
                                       : run(kernel, bf16, 3, k, group, pad);
          };
          const Quantized want = quantize(*plain), got = quantize(*quads);
          const int width = (k + pad - 1) / pad * pad + 5;
          for (int i = 0; i < 3 * width; ++i) {
            const int column = i % width;
            const int exchanged[4] = {0, 1, -1, 0};
            const int from = column < k ? i + exchanged[column % 4] : i;
            ASSERT_EQ(got.q[static_cast<size_t>(i)], want.q[static_cast<size_t>(from)])
                << quads->name << " k " << k << " group " << group << " at " << column;
          }
          ASSERT_EQ(got.sums, want.sums) << quads->name << " k " << k << " group " << group;
          for (size_t m = 0; m < 3; ++m) {
            if (std::isnan(want.scale[m])) {
              ASSERT_TRUE(std::isnan(got.scale[m]));
            } else {
              ASSERT_EQ(got.scale[m], want.scale[m]);
            }
          }
        }
      }
    }
  }
}

TEST_F(QuantizeKernels, LiteralQuads) {
  const std::vector<float> a = {127, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<int8_t> want = {127, 3, 2, 4, 5, 7, 6, 8};
  for (DType type : {DType::kF32, DType::kBF16}) {
    const KernelHandle kernel = make(QuantizeRowsAvx512Config{type, 4, true, true});
    std::vector<uint16_t> bf16;
    for (float x : a) bf16.push_back(bf16_bits(x));
    Quantized out =
        type == DType::kF32 ? run(*kernel, a, 1, 8, 4, 4) : run(*kernel, bf16, 1, 8, 4, 4);
    out.q.resize(8);
    EXPECT_EQ(out.q, want);
    EXPECT_EQ(out.sums, (std::vector<int32_t>{136, 26}));
  }
}

}  // namespace
}  // namespace quern::jit
