// The NVFP4 micro-kernel alone, registers poisoned: against triple loops over numbers so small that
// every order of addition is exact, and bit for bit against bf16_gemm on decoded panels.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "jit/bf16_gemm_avx512.h"
#include "jit/bf16_gemm_fma_avx512.h"
#include "jit/nvfp4_gemm_avx512.h"
#include "tests/jit/gemm_block.h"
#include "tests/jit/grouped_call.h"
#include "tests/jit/kernel_fixture.h"
#include "tests/jit/nvfp4_block.h"

namespace quern::jit {
namespace {

using test::Flush;
using test::GuardBuffer;

constexpr int kDepths[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  15, 16, 17, 22, 23, 24, 25,
                           31, 32, 33, 39, 40, 41, 47, 48, 56, 57, 63, 64, 65, 79, 95, 96, 111};

/// Rows of A as a family reads them: bf16 that end with K, or f32 in whole pairs.
struct Rows {
  std::vector<uint16_t> bf16;
  std::vector<float> f32;
  int k, stride;

  Rows(int rows, int depth, const std::vector<uint16_t>& bits)
      : bf16(bits), k(depth), stride((depth + 1) / 2 * 2) {
    f32.resize(static_cast<size_t>(rows * stride), 0.0f);
    for (int m = 0; m < rows; ++m) {
      for (int i = 0; i < k; ++i) {
        const uint32_t word = uint32_t{bits[static_cast<size_t>(m * k + i)]} << 16;
        std::memcpy(&f32[static_cast<size_t>(m * stride + i)], &word, 4);
      }
    }
  }
};

class Nvfp4Kernels : public KernelTest {
 protected:
  static constexpr int kGap = 2;

  /// One call, or two that cut K at `cut`, on operands between guard pages: m rows in `blocks`.
  std::vector<float> multiply(const Kernel& kernel, bool fma, const Nvfp4Block& w, const Rows& rows,
                              int m, int blocks, int n, const std::vector<float>& col_scale,
                              int cut, Flush flush, Numbers& numbers) {
    const GuardBuffer a = fma ? guarded(rows.f32, flush) : guarded(rows.bf16, flush);
    const GuardBuffer b = guarded(w.codes(), flush);
    const GuardBuffer scale = guarded(w.scales(kGap), flush);
    const GuardBuffer columns = guarded(col_scale, flush);
    GuardBuffer acc(static_cast<size_t>(m * w.columns()) * 4, flush);
    std::memset(acc.data(), 0xff, acc.size());
    std::vector<float> c(static_cast<size_t>(m * (w.columns() + 3)), kCanary);
    uint32_t control[2];
    for (int from = 0, part = 0; part < (cut == 0 ? 1 : 2); ++part) {
      const int to = cut != 0 && part == 0 ? cut : w.k;
      GemmArgs args;
      const int a_bytes = fma ? 4 : 2;
      args.a = a.data() + from * a_bytes;
      args.a_stride = a_bytes * (fma ? rows.stride : w.k);
      args.b = b.data() + from * 8;
      args.panel_stride = w.panel_bytes();
      args.scale = scale.data() + from;
      args.scale_stride = 16 * (w.blocks() + kGap);
      args.k = to - from;
      args.n = n;
      args.first = part == 0;
      args.last = to == w.k;
      args.acc = acc.data();
      args.acc_step = m / blocks * w.columns() * 4;
      args.blocks = blocks;
      args.c = args.last ? c.data() : nullptr;
      args.c_stride = (w.columns() + 3) * 4;
      args.col_scale = reinterpret_cast<const float*>(columns.data());
      args.control = control;
      hint(&args, args.k / 8, numbers);
      kernel.call(args);
      from = to;
    }
    EXPECT_TRUE(acc.slack_intact());
    return c;
  }

  void check_exact(bool fma, int* kernels) {
    Numbers numbers(fma ? 61 : 62);
    for (int mr = 1; mr <= 16; ++mr) {
      for (int nr = 1; nr <= 4; ++nr) {
        const std::vector<int> all = prefetches(nr);
        const int prefetch = all[static_cast<size_t>(*kernels) % all.size()];
        const Nvfp4GemmAvx512Config config{{mr, nr, prefetch, true, {DType::kF32}}, fma};
        if (invalid(config) != nullptr) continue;
        ++*kernels;
        const KernelHandle kernel = make(config);
        for (const int k : kDepths) {
          Nvfp4Block w(nr, k, numbers);
          w.use_small_scales(numbers);
          const int blocks = 1 + static_cast<int>(numbers.next() % 3), all_rows = mr * blocks;
          std::vector<uint16_t> bits(static_cast<size_t>(all_rows * k));
          for (uint16_t& x : bits) x = bf16_bits(numbers.small());
          const Rows rows(all_rows, k, bits);
          std::vector<float> col_scale(static_cast<size_t>(w.columns()));
          for (float& x : col_scale) x = 0.5f * static_cast<float>(1 << (numbers.next() % 3));
          const int n = 16 * (nr - 1) + 1 + static_cast<int>(numbers.next() % 16);
          const Flush flush = numbers.next() % 2 == 0 ? Flush::kEnd : Flush::kStart;
          const int cut = k > 64 ? 64 : 0;
          const std::vector<float> c =
              multiply(*kernel, fma, w, rows, all_rows, blocks, n, col_scale, cut, flush, numbers);
          for (int m = 0; m < all_rows; ++m) {
            for (int column = 0; column < w.columns() + 3; ++column) {
              float want = kCanary;
              if (column < n) {
                want = 0;
                for (int d = 0; d < k; ++d) {
                  want += rows.f32[static_cast<size_t>(m * rows.stride + d)] * w.value(column, d);
                }
                want *= col_scale[static_cast<size_t>(column)];
              }
              ASSERT_EQ(c[static_cast<size_t>(m * (w.columns() + 3) + column)], want)
                  << kernel->name << " row " << m << " column " << column << " k " << k;
            }
          }
        }
      }
    }
  }

  /// Rows of any bits: products and sums of every size, infinities and NaNs.
  template <typename Bf16Config>
  void check_bits(bool fma) {
    Numbers numbers(fma ? 63 : 64);
    int special = 0, flushed = 0;
    for (int round = 0; round < 2000; ++round) {
      constexpr int kMr = 3, kNr = 2;
      const GemmConfig shape{kMr, kNr, 0, true, {DType::kF32}};
      const KernelHandle packed = make(Nvfp4GemmAvx512Config{shape, fma});
      const KernelHandle decoded = make(Bf16Config{shape, DType::kBF16, true});
      const int k = 1 + static_cast<int>(numbers.next() % 70);
      Nvfp4Block w(kNr, k, numbers);
      w.use_any_scales(numbers);
      std::vector<uint16_t> bits(static_cast<size_t>(kMr * k));
      for (uint16_t& x : bits) {
        x = static_cast<uint16_t>(numbers.next());
        if (round % 3 == 1) x = static_cast<uint16_t>((x & 0x83ff) | 0x3c00);  // near 1
        if (round % 3 == 2) x = static_cast<uint16_t>((x & 0x81ff) | 0x0080);  // near 2^-126
      }
      const Rows rows(kMr, k, bits);
      const std::vector<float> col_scale(static_cast<size_t>(w.columns()), 0.3f);
      const std::vector<float> got =
          multiply(*packed, fma, w, rows, kMr, 1, w.columns(), col_scale, 0, Flush::kEnd, numbers);
      const std::vector<uint16_t> pairs = w.pairs();
      std::vector<float> want(got.size(), kCanary);
      uint32_t control[2];
      GemmArgs args;
      args.a = fma ? static_cast<const void*>(rows.f32.data()) : rows.bf16.data();
      args.a_stride = fma ? 4 * rows.stride : 2 * k;
      args.b = pairs.data();
      args.panel_stride = 32 * w.padded();
      args.k = k;
      args.n = w.columns();
      args.c = want.data();
      args.c_stride = (w.columns() + 3) * 4;
      args.col_scale = col_scale.data();
      args.control = control;
      decoded->call(args);
      for (size_t i = 0; i < got.size(); ++i) {
        uint32_t x, y;
        std::memcpy(&x, &got[i], 4);
        std::memcpy(&y, &want[i], 4);
        ASSERT_EQ(x, y) << "round " << round << " element " << i << " k " << k;
        special += (x & 0x7f800000) == 0x7f800000 ? 1 : 0;
        flushed += (x & 0x7fffffff) == 0 ? 1 : 0;
      }
    }
    EXPECT_GT(special, 1000);
    EXPECT_GT(flushed, 100);
  }
};

TEST_F(Nvfp4Kernels, DotsEveryShapeTailAndCut) {
  if (!features_.bf16) GTEST_SKIP() << "not run: no AVX512-BF16";
  int kernels = 0;
  ASSERT_NO_FATAL_FAILURE(check_exact(false, &kernels));
  EXPECT_EQ(kernels, 4 + 7 + 12 + 16);
}

TEST_F(Nvfp4Kernels, FmasEveryShapeTailAndCut) {
  int kernels = 0;
  ASSERT_NO_FATAL_FAILURE(check_exact(true, &kernels));
  EXPECT_EQ(kernels, 3 + 5 + 10 + 16);
}

TEST_F(Nvfp4Kernels, DotsHaveTheBitsOfBf16GemmOnDecodedPanels) {
  if (!features_.bf16) GTEST_SKIP() << "not run: no AVX512-BF16";
  check_bits<Bf16GemmAvx512Config>(false);
}

TEST_F(Nvfp4Kernels, FmasHaveTheBitsOfBf16GemmOnDecodedPanels) {
  check_bits<Bf16GemmFmaAvx512Config>(true);
}

}  // namespace
}  // namespace quern::jit
