// Each GEMM micro-kernel alone against triple loops over small integers, where every order of
// addition gives the same answer, so that the comparison is exact. Registers are poisoned in every
// case.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "jit/bf16_gemm_avx512.h"
#include "jit/bf16_gemm_fma_avx512.h"
#include "jit/gemm_args.h"
#include "jit/int8_gemm_avx512.h"
#include "tests/jit/gemm_block.h"
#include "tests/jit/kernel_fixture.h"

namespace quern::jit {
namespace {

constexpr int kDepths[] = {0, 1, 2, 3, 4, 5, 7, 15, 16, 17, 18, 19, 64, 67};
const GemmEpilogue kLinear{DType::kF32, true, Activation::kNone, true};

/// How many blocks of rows a call computes.
int some_blocks(Numbers& numbers) {
  return 1 + static_cast<int>(numbers.next() % 3);
}

class GemmKernels : public KernelTest {};

TEST_F(GemmKernels, Int8EveryShapeAndTail) {
  Numbers numbers(1);
  int kernels = 0;
  for (int mr = 1; mr <= 16; ++mr) {
    for (int nr = 1; nr <= 4; ++nr) {
      for (const int prefetch : prefetches(nr)) {
        const bool wide = kernels % 2 == 1;
        const Int8GemmAvx512Config config{{mr, nr, prefetch, true, kLinear}, wide};
        if (invalid(config) != nullptr) continue;
        ++kernels;
        const KernelHandle kernel = make(config);
        for (int k : kDepths) {
          const int blocks = some_blocks(numbers);
          const Block block(mr * blocks, 16 * nr, k, numbers);
          const auto a = block.a_s8();
          const auto b = block.b_u8();
          const int n = 16 * (nr - 1) + 1 + static_cast<int>(numbers.next() % 16);
          GemmArgs args = common_args(block, n);
          args.blocks = blocks;
          args.a = a.data();
          args.a_stride = block.padded_k();
          args.b = b.data();
          args.panel_stride = 16 * block.padded_k();
          hint(&args, block.padded_k() / 4, numbers);
          Output out(block);
          out.point(&args);
          kernel->call(args);
          expect_block(block, out, n, true, true, kernel->name);
        }
      }
    }
  }
  EXPECT_EQ(kernels, 6 * 5 + 9 * 5 + 14 * 5 + 16 * 4);
}

// Earlier cuts of K brought the sums of codes to an edge of 32 bits: 131,072 products of -128 and 0
// or 132,104 of 127 and 0. The next product wraps them, and what the row sum takes off wraps them
// back. A saturating dot product would stop at the edge.
TEST_F(GemmKernels, Int8SumsOfCodesWrapOnTheWay) {
  struct Edge {
    int a;
    int64_t depths;
  };
  constexpr int kDepth = 64;
  Numbers numbers(7);
  for (const Edge edge : {Edge{-128, 131072}, Edge{127, 132104}}) {
    const auto codes = static_cast<int32_t>(edge.a * edge.depths * 128);
    for (int mr = 1; mr <= 16; ++mr) {
      for (int nr = 1; nr <= 4; ++nr) {
        const Int8GemmAvx512Config config{{mr, nr, 0, true, kLinear}, false};
        if (invalid(config) != nullptr) continue;
        const KernelHandle kernel = make(config);
        Block block(mr, 16 * nr, kDepth, numbers);
        for (int& x : block.a) x = edge.a;
        for (int& x : block.w) x = std::max(x, -127);  // code 0 would leave the edge alone
        block.sum_rows();
        for (int32_t& sum : block.row_sum) sum += static_cast<int32_t>(edge.a * edge.depths);
        const auto a = block.a_s8();
        const auto b = block.b_u8();
        std::vector<int32_t> partial(static_cast<size_t>(mr * 16 * nr), codes);
        GemmArgs args = common_args(block, 16 * nr);
        args.a = a.data();
        args.a_stride = kDepth;
        args.b = b.data();
        args.panel_stride = 16 * kDepth;
        args.first = false;
        args.acc = partial.data();
        Output out(block);
        out.point(&args);
        kernel->call(args);
        expect_block(block, out, 16 * nr, true, true, kernel->name);
      }
    }
  }
}

/// Every shape of one bf16 family against the loops. `a` holds the block's rows as the family reads
/// them, `a_stride` bytes apart.
template <typename Config, typename Rows>
int check_bf16_family(KernelTest& test, bool has_vbmi, uint64_t seed, const Rows& rows) {
  Numbers numbers(seed);
  int kernels = 0;
  struct Weights {
    DType type;
    bool vbmi;
  };
  for (const auto& [type, vbmi] : {Weights{DType::kBF16, true}, Weights{DType::kU8, true},
                                   Weights{DType::kE4M3, true}, Weights{DType::kE4M3, false}}) {
    if (type == DType::kE4M3 && vbmi && !has_vbmi) continue;
    for (int mr = 1; mr <= 16; ++mr) {
      for (int nr = 1; nr <= 4; ++nr) {
        const std::vector<int> all = prefetches(nr);
        const int prefetch = all[static_cast<size_t>(kernels) % all.size()];
        const Config config{{mr, nr, prefetch, true, kLinear}, type, false, vbmi};
        if (invalid(config) != nullptr) continue;
        ++kernels;
        const KernelHandle kernel = test.make(config);
        for (int k : kDepths) {
          const int blocks = some_blocks(numbers);
          Block block(mr * blocks, 16 * nr, k, numbers);
          if (type == DType::kE4M3) block.use_small_weights();
          const auto a = rows(block);
          const auto b = block.b_bf16();
          const auto codes = type == DType::kU8 ? block.b_u8() : block.b_e4m3();
          const bool is_codes = type != DType::kBF16;
          const int n = 16 * (nr - 1) + 1 + static_cast<int>(numbers.next() % 16);
          GemmArgs args = common_args(block, n);
          args.a = a.data();
          args.a_stride = static_cast<int64_t>(a.size() * sizeof a[0]) / block.mr;
          args.blocks = blocks;
          args.b = is_codes ? static_cast<const void*>(codes.data()) : b.data();
          args.panel_stride = is_codes ? 16 * block.padded_k() : 16 * ((k + 1) / 2 * 4);
          hint(&args, is_codes ? k / 4 : k / 2, numbers);
          Output out(block);
          out.point(&args);
          kernel->call(args);
          expect_block(block, out, n, false, is_codes, kernel->name);
          if (::testing::Test::HasFatalFailure()) return kernels;
        }
      }
    }
  }
  return kernels;
}

TEST_F(GemmKernels, Bf16EveryShapeAndTail) {
  if (!features_.bf16) GTEST_SKIP() << "not run: no AVX512-BF16";
  const auto rows = [](const Block& block) { return block.a_bf16(); };
  EXPECT_EQ(check_bf16_family<Bf16GemmAvx512Config>(*this, features_.vbmi, 2, rows),
            (6 + 9 + 14 + 16) + (5 + 7 + 12 + 16) + (features_.vbmi ? 2 : 1) * (4 + 6 + 11 + 16));
}

TEST_F(GemmKernels, Bf16FmaEveryShapeAndTail) {
  const auto rows = [](const Block& block) { return block.a_f32(); };
  EXPECT_EQ(check_bf16_family<Bf16GemmFmaAvx512Config>(*this, features_.vbmi, 6, rows),
            (6 + 9 + 14 + 16) + (5 + 7 + 12 + 16) + (features_.vbmi ? 2 : 1) * (3 + 5 + 9 + 16));
}

// All 256 codes decode exactly: k = 1 with an activation of 1 gives the decoded weight itself.
TEST_F(GemmKernels, EveryU8CodeDecodesExactly) {
  if (!features_.bf16) GTEST_SKIP() << "not run: no AVX512-BF16";
  Numbers numbers(3);
  const KernelHandle kernel =
      make(Bf16GemmAvx512Config{{1, 4, 0, true, {DType::kF32}}, DType::kU8});
  for (int slot = 0; slot < 4; ++slot) {
    for (int first = -128; first < 128; first += 64) {
      Block block(1, 64, 4, numbers);
      std::fill(block.a.begin(), block.a.end(), 0);
      block.a[static_cast<size_t>(slot)] = 1;
      std::fill(block.col_scale.begin(), block.col_scale.end(), 1.0f);
      for (int c = 0; c < 64; ++c) block.w[static_cast<size_t>(c * 4 + slot)] = first + c;
      const auto a = block.a_bf16();
      const auto codes = block.b_u8();
      GemmArgs args = common_args(block, 64);
      args.a = a.data();
      args.a_stride = 8;
      args.b = codes.data();
      args.panel_stride = 64;
      Output out(block);
      out.point(&args);
      kernel->call(args);
      for (int c = 0; c < 64; ++c) ASSERT_EQ(out.at(0, c), static_cast<float>(first + c)) << slot;
    }
  }
}

// A sum cut at any multiple of 64 continues from its partial sums with the same bits, block by
// block; the scratch beside them, and between those of two blocks, is not touched.
TEST_F(GemmKernels, CutsOfKContinueFromPartialSums) {
  constexpr int kRows = 5, kBlocks = 3, kGap = 16;
  Numbers numbers(4);
  for (bool wide : {false, true}) {
    const KernelHandle kernel = make(Int8GemmAvx512Config{{kRows, 3, 0, true, kLinear}, wide});
    const Block block(kRows * kBlocks, 48, 200, numbers);
    const auto a = block.a_s8();
    const auto b = block.b_u8();
    const int partial_floats = kRows * 48 * (wide ? 2 : 1), step = partial_floats + kGap;
    std::vector<float> partial(static_cast<size_t>(step * kBlocks), kCanary);
    Output out(block);
    for (int k0 = 0; k0 < 200; k0 += 64) {
      GemmArgs args = common_args(block, 47);
      args.a = a.data() + k0;
      args.a_stride = block.padded_k();
      args.b = b.data() + k0 * 16;
      args.panel_stride = 16 * block.padded_k();
      args.k = std::min(64, 200 - k0);
      args.first = k0 == 0;
      args.last = k0 + 64 >= 200;
      args.acc = partial.data();
      args.acc_step = step * 4;
      args.blocks = kBlocks;
      out.point(&args);
      kernel->call(args);
    }
    expect_block(block, out, 47, true, true, kernel->name);
    for (int i = 0; i < step * kBlocks; ++i) {
      if (i % step < partial_floats) continue;
      ASSERT_EQ(partial[static_cast<size_t>(i)], kCanary) << i;
    }
  }
}

// Consecutive lines go on behind those of the block before, so that together they cover what the
// next call reads.
TEST_F(GemmKernels, BlocksFetchOnWhereTheLastOneEnded) {
  Numbers numbers(8);
  for (const int lines : {1, 2, 4}) {
    const KernelHandle kernel = make(Int8GemmAvx512Config{{2, 2, lines, true, kLinear}, false});
    const Block block(6, 32, 64, numbers);
    const auto a = block.a_s8();
    const auto b = block.b_u8();
    GemmArgs args = common_args(block, 32);
    args.a = a.data();
    args.a_stride = block.padded_k();
    args.b = b.data();
    args.panel_stride = 16 * block.padded_k();
    args.prefetch_next = b.data();
    args.blocks = 3;
    Output out(block);
    out.point(&args);
    kernel->call(args);
    constexpr int kTurns = 64 / 4 / 4;
    EXPECT_EQ(args.prefetch_next, b.data() + 3 * kTurns * lines * 64);
    EXPECT_EQ(args.blocks, 1);
  }
}

// 131,072 products of -128 and -128 do not fit 32 bits; cut at 65,536 they meet in 64.
TEST_F(GemmKernels, WideSumsAreExactBeyond32Bits) {
  constexpr int kPart = 65536;
  constexpr int kParts = 3;
  Numbers numbers(5);
  const KernelHandle kernel = make(Int8GemmAvx512Config{{1, 1, 0, true, {DType::kF32}}, true});
  Block block(1, 16, kPart, numbers);
  std::fill(block.a.begin(), block.a.end(), -128);
  std::fill(block.w.begin(), block.w.end(), -128);
  block.row_sum[0] = -128 * kPart * kParts;
  block.row_scale[0] = 1;
  std::fill(block.col_scale.begin(), block.col_scale.end(), 1.0f);
  const auto a = block.a_s8();
  const auto b = block.b_u8();
  std::vector<int64_t> partial(16);
  Output out(block);
  for (int part = 0; part < kParts; ++part) {
    GemmArgs args = common_args(block, 16);
    args.a = a.data();
    args.b = b.data();
    args.first = part == 0;
    args.last = part == kParts - 1;
    args.acc = partial.data();
    out.point(&args);
    kernel->call(args);
  }
  EXPECT_EQ(out.at(0, 0), 3221225472.0f);  // 196,608 * 16,384, a power of two times three: exact
  EXPECT_EQ(out.at(0, 15), 3221225472.0f);
}

}  // namespace
}  // namespace quern::jit
