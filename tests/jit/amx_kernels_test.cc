// Each AMX micro-kernel alone: against triple loops over small integers, where the comparison is
// exact, and for what only tiles can get wrong: configuration, padding, scratch, threads.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "jit/bf16_gemm_amx.h"
#include "jit/gemm_args.h"
#include "jit/int8_gemm_amx.h"
#include "tests/jit/amx_fixture.h"
#include "tests/jit/gemm_block.h"
#include "tests/support/guard_buffer.h"

namespace quern::jit {
namespace {

using test::Flush;
using test::GuardBuffer;

// Every residue of a bf16 tile's 32 and an int8 tile's 64 that a kernel could treat apart.
constexpr int kDepths[] = {0,  1,  2,  3,  4,  5,   31,  32,  33, 47,
                           63, 64, 65, 66, 96, 127, 128, 129, 130};
const GemmEpilogue kLinear{DType::kF32, true, Activation::kNone, true};

/// What an operand's bytes are when nothing beyond them may be touched.
template <typename T>
GuardBuffer guarded(const std::vector<T>& values) {
  GuardBuffer buffer(values.size() * sizeof(T), Flush::kEnd);
  if (!values.empty()) std::memcpy(buffer.data(), values.data(), values.size() * sizeof(T));
  buffer.make_read_only();
  return buffer;
}

/// One call on a block, every operand against a guard page.
class Call {
 public:
  Call(const Block& block, bool s8_rows, bool codes, int n, DType code_type = DType::kU8)
      : out(block),
        a_(s8_rows ? guarded(block.a_s8()) : guarded(block.a_bf16())),
        b_(!codes                      ? guarded(block.b_bf16())
           : code_type == DType::kE4M3 ? guarded(block.b_e4m3())
                                       : guarded(block.b_u8())),
        tiles_(kTileScratchBytes, Flush::kEnd) {
    std::memset(tiles_.data(), 0xff, tiles_.size());
    args = common_args(block, n);
    args.m = block.mr;
    args.a = a_.data();
    args.a_stride = static_cast<int64_t>(a_.size()) / block.mr;
    args.b = b_.data();
    args.panel_stride = static_cast<int64_t>(b_.size()) / (block.columns / 16);
    args.tiles = tiles_.data();
    out.point(&args);
  }

  Output out;
  GemmArgs args;

 private:
  GuardBuffer a_, b_, tiles_;
};

Block amx_block(int rows, int columns, int k, Numbers& numbers) {
  Block block(rows, columns, k, numbers);
  block.pad_lines = 16;
  return block;
}

class AmxKernels : public AmxKernelTest {
 protected:
  /// Rows for a kernel of `mr`: all of them the first time, then a few.
  static std::vector<int> rows_of(int mr, bool all) {
    std::vector<int> rows;
    for (int m = mr - 15; m <= mr; ++m) {
      if (all || m == mr - 15 || m == mr - 9 || m == mr) rows.push_back(m);
    }
    return rows;
  }

  /// Every register block, prefetch, number of rows, depth and width. A tile's `depth` is in
  /// panel_lines of each panel.
  template <typename Config>
  void check_shapes(const Config& base, bool s8_rows, bool codes, int depth, int panel_lines,
                    DType code_type = DType::kU8) {
    Numbers numbers(7);
    int kernels = 0;
    for (int mr : {16, 32}) {
      for (int nr = 1; nr <= 4; ++nr) {
        bool all_rows = true;
        for (const int prefetch : prefetches(nr)) {
          Config config = base;
          static_cast<GemmConfig&>(config) = {mr, nr, prefetch, true, kLinear};
          if (invalid(config) != nullptr) continue;
          ++kernels;
          const KernelHandle kernel = make(config);
          ASSERT_NE(kernel, nullptr);
          for (const int m : rows_of(mr, all_rows)) {
            for (const int k : kDepths) {
              if (!all_rows && k % 31 > 2) continue;
              Block block = amx_block(m, 16 * nr, k, numbers);
              if (code_type == DType::kE4M3) block.use_small_weights();
              const int n = 16 * (nr - 1) + 1 + static_cast<int>(numbers.next() % 16);
              Call call(block, s8_rows, codes, n, code_type);
              hint(&call.args, k / depth * panel_lines, numbers);
              kernel->call(call.args);
              expect_block(block, call.out, n, s8_rows, codes, kernel->name);
              if (HasFatalFailure()) return;
              ASSERT_EQ(tiles_.store(), TileConfig{}) << "tiles were left configured";
            }
          }
          all_rows = false;
        }
      }
    }
    EXPECT_EQ(kernels, 4 + 5 + 5 + 5 + 4 + 5);
  }

  TileConfigCode tiles_;
};

TEST_F(AmxKernels, Int8EveryShapeAndTail) {
  check_shapes(Int8GemmAmxConfig{}, true, true, 64, 16);
}

TEST_F(AmxKernels, Int8WideEveryShapeAndTail) {
  check_shapes(Int8GemmAmxConfig{{}, true}, true, true, 64, 16);
}

TEST_F(AmxKernels, Bf16EveryShapeAndTail) {
  check_shapes(Bf16GemmAmxConfig{}, false, false, 32, 16);
}

TEST_F(AmxKernels, Bf16TimesU8EveryShapeAndTail) {
  check_shapes(Bf16GemmAmxConfig{{}, DType::kU8}, false, true, 32, 8);
}

TEST_F(AmxKernels, Bf16TimesE4M3EveryShapeAndTail) {
  for (const bool vbmi : {true, false}) {
    if (vbmi && !features_.vbmi) continue;
    check_shapes(Bf16GemmAmxConfig{{}, DType::kE4M3, false, vbmi}, false, true, 32, 8,
                 DType::kE4M3);
  }
}

TEST_F(AmxKernels, EveryU8CodeDecodesExactly) {
  Numbers numbers(3);
  const KernelHandle kernel = make(Bf16GemmAmxConfig{{16, 4, 0, true, {DType::kF32}}, DType::kU8});
  for (int slot = 0; slot < 4; ++slot) {
    for (int first = -128; first < 128; first += 64) {
      Block block = amx_block(1, 64, 4, numbers);
      std::fill(block.a.begin(), block.a.end(), 0);
      block.a[static_cast<size_t>(slot)] = 1;
      std::fill(block.col_scale.begin(), block.col_scale.end(), 1.0f);
      for (int c = 0; c < 64; ++c) block.w[static_cast<size_t>(c * 4 + slot)] = first + c;
      Call call(block, false, true, 64);
      kernel->call(call.args);
      for (int c = 0; c < 64; ++c) {
        ASSERT_EQ(call.out.at(0, c), static_cast<float>(first + c)) << slot;
      }
    }
  }
}

// A sum cut at any multiple of 64 continues from its partial sums with the same bits; the scratch
// beside them is not touched.
TEST_F(AmxKernels, CutsOfKContinueFromPartialSums) {
  Numbers numbers(4);
  constexpr int kRows = 21, kColumns = 32, kDepth = 200;
  const auto check = [&](const auto& config, bool s8, bool u8, int a_bytes, int b_bytes,
                         bool wide) {
    const KernelHandle kernel = make(config);
    const Block block = amx_block(kRows, kColumns, kDepth, numbers);
    const size_t partial_floats = static_cast<size_t>(kRows * kColumns * (wide ? 2 : 1));
    std::vector<float> partial(partial_floats + 16, kCanary);
    Call call(block, s8, u8, 31);
    const GemmArgs whole = call.args;
    for (int k0 = 0; k0 < kDepth; k0 += 64) {
      GemmArgs& args = call.args;
      args.a = static_cast<const char*>(whole.a) + k0 * a_bytes;
      args.b = static_cast<const char*>(whole.b) + k0 * 16 * b_bytes;
      args.k = std::min(64, kDepth - k0);
      args.first = k0 == 0;
      args.last = k0 + 64 >= kDepth;
      args.acc = partial.data();
      kernel->call(args);
    }
    expect_block(block, call.out, 31, s8, u8, kernel->name);
    for (size_t i = partial_floats; i < partial.size(); ++i) ASSERT_EQ(partial[i], kCanary);
  };
  check(Int8GemmAmxConfig{{32, 2, 0, true, kLinear}, false}, true, true, 1, 1, false);
  check(Int8GemmAmxConfig{{32, 2, 0, true, kLinear}, true}, true, true, 1, 1, true);
  check(Bf16GemmAmxConfig{{32, 2, 0, true, kLinear}, DType::kBF16}, false, false, 2, 2, false);
  check(Bf16GemmAmxConfig{{32, 2, 0, true, kLinear}, DType::kU8}, false, true, 2, 1, false);
}

// 196,608 products of -128 and -128 do not fit 32 bits; cut at 65,536 they meet in 64.
TEST_F(AmxKernels, WideSumsAreExactBeyond32Bits) {
  constexpr int kPart = 65536, kParts = 3;
  Numbers numbers(5);
  const KernelHandle kernel = make(Int8GemmAmxConfig{{16, 1, 0, true, {DType::kF32}}, true});
  Block block = amx_block(1, 16, kPart, numbers);
  std::fill(block.a.begin(), block.a.end(), -128);
  std::fill(block.w.begin(), block.w.end(), -128);
  block.row_sum[0] = -128 * kPart * kParts;
  block.row_scale[0] = 1;
  std::fill(block.col_scale.begin(), block.col_scale.end(), 1.0f);
  std::vector<int64_t> partial(16);
  Call call(block, true, true, 16);
  for (int part = 0; part < kParts; ++part) {
    call.args.first = part == 0;
    call.args.last = part == kParts - 1;
    call.args.acc = partial.data();
    kernel->call(call.args);
  }
  EXPECT_EQ(call.out.at(0, 0), 3221225472.0f);
  EXPECT_EQ(call.out.at(0, 15), 3221225472.0f);
}

// bug_log T01: a row of NaN or infinity stays in its row whatever K leaves for the last tile, and
// what lies behind a row of A is not multiplied.
TEST_F(AmxKernels, NanAndInfinityStayInTheirRow) {
  Numbers numbers(6);
  constexpr int kRows = 17, kBadRow = 3;
  const KernelHandle kernel = make(Bf16GemmAmxConfig{{32, 1, 0, true, {DType::kF32}}});
  for (const int k : {1, 2, 31, 33, 63, 65}) {
    for (const int gap : {0, 7}) {
      const Block block = amx_block(kRows, 16, k, numbers);
      Call clean(block, false, false, 16);
      kernel->call(clean.args);
      for (const uint16_t bad : {uint16_t{0x7fc0}, uint16_t{0x7f80}}) {
        const std::vector<uint16_t> rows = block.a_bf16();
        // NaN in the gap and behind the last row.
        std::vector<uint16_t> a(static_cast<size_t>(kRows * (k + gap) + 64), 0x7fc0);
        for (int m = 0; m < kRows; ++m) {
          for (int i = 0; i < k; ++i) {
            a[static_cast<size_t>(m * (k + gap) + i)] =
                m == kBadRow ? bad : rows[static_cast<size_t>(m * k + i)];
          }
        }
        Call call(block, false, false, 16);
        call.args.a = a.data();
        call.args.a_stride = 2 * (k + gap);
        kernel->call(call.args);
        for (int m = 0; m < kRows; ++m) {
          for (int c = 0; c < 16; ++c) {
            if (m == kBadRow) {
              EXPECT_FALSE(std::isfinite(call.out.at(m, c))) << k << ' ' << c;
            } else {
              ASSERT_EQ(call.out.at(m, c), clean.out.at(m, c)) << k << ' ' << gap << ' ' << m;
            }
          }
        }
      }
    }
  }
}

// Whatever the caller had in the tiles: another shape, or the same one with other data.
TEST_F(AmxKernels, ForeignPaletteBeforeACall) {
  Numbers numbers(8);
  const KernelHandle kernel = make(Int8GemmAmxConfig{{32, 2, 0, true, kLinear}});
  TileConfig foreign{};
  foreign[0] = 1;
  for (size_t i = 0; i < 8; ++i) {
    foreign[16 + 2 * i] = 4;  // bytes of a row
    foreign[48 + i] = 3;      // rows
  }
  const Block block = amx_block(29, 32, 130, numbers);
  for (int call_number = 0; call_number < 2; ++call_number) {
    tiles_.load(foreign);
    Call call(block, true, true, 30);
    kernel->call(call.args);
    expect_block(block, call.out, 30, true, true, kernel->name);
    EXPECT_EQ(tiles_.store(), TileConfig{});
  }
}

// Calls that share a configuration as serves_tiles() allows give what they give alone.
TEST_F(AmxKernels, ConfigurationServesTheShapesItMay) {
  Numbers numbers(9);
  for (int configured = 1; configured <= 32; ++configured) {
    for (int rows = 1; rows <= 32; ++rows) {
      for (int nr = 1; nr <= (rows > 16 ? 2 : 4); ++nr) {
        if (!serves_tiles(configured, rows, nr)) continue;
        const int first_nr = configured > 16 ? 2 : 4;
        const KernelHandle first =
            make(Int8GemmAmxConfig{{configured > 16 ? 32 : 16, first_nr, 0, true, kLinear}});
        const KernelHandle second =
            make(Int8GemmAmxConfig{{rows > 16 ? 32 : 16, nr, 0, true, kLinear}});
        const Block one = amx_block(configured, 16 * first_nr, 70, numbers);
        const Block two = amx_block(rows, 16 * nr, 67, numbers);
        Call call_one(one, true, true, 16 * first_nr);
        Call call_two(two, true, true, 16 * nr);
        call_one.args.release = 0;
        call_two.args.configure = 0;
        first->call(call_one.args);
        second->call(call_two.args);
        expect_block(one, call_one.out, 16 * first_nr, true, true, first->name);
        expect_block(two, call_two.out, 16 * nr, true, true, second->name);
        if (HasFatalFailure()) return;
        ASSERT_EQ(tiles_.store(), TileConfig{});
      }
    }
  }
}

// bug_log T07: one kernel, and another of another tile shape in between, in many threads.
TEST_F(AmxKernels, ManyThreadsOnOneKernel) {
  constexpr int kThreads = 16, kCalls = 50;
  const KernelHandle wide = make(Int8GemmAmxConfig{{32, 2, 2, true, kLinear}});
  const KernelHandle flat = make(Int8GemmAmxConfig{{16, 4, 0, true, kLinear}});
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Numbers numbers(static_cast<uint64_t>(100 + t));
      const Block one = amx_block(17 + t, 32, 100, numbers);
      const Block two = amx_block(1 + t, 64, 65, numbers);
      for (int i = 0; i < kCalls; ++i) {
        Call call_one(one, true, true, 32);
        hint(&call_one.args, 0, numbers);
        wide->call(call_one.args);
        Call call_two(two, true, true, 64);
        flat->call(call_two.args);
        expect_block(one, call_one.out, 32, true, true, wide->name);
        expect_block(two, call_two.out, 64, true, true, flat->name);
        if (HasFatalFailure()) return;
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

// As many dot products as the block has tiles, and one load for each of them in a full block.
TEST_F(AmxKernels, DotProductsAndLoadsAreCounted) {
  if (!emulated()) GTEST_SKIP() << "not run: only the emulator counts";
  Numbers numbers(10);
  const auto count = [&](const auto& config, bool s8, bool u8, int m, int nr, int k, int depth) {
    const KernelHandle kernel = make(config);
    const Block block = amx_block(m, 16 * nr, k, numbers);
    Call call(block, s8, u8, 16 * nr);
    const amx_emu::Counters before = amx_emu::thread_counters();
    kernel->call(call.args);
    const amx_emu::Counters c = amx_emu::thread_counters() - before;
    const auto tiles = static_cast<uint64_t>((m + 15) / 16 * nr * ((k + depth - 1) / depth));
    EXPECT_EQ(c.dots(), tiles) << kernel->name;
    EXPECT_EQ(c[amx_emu::Op::kLdtilecfg], 1u);
    EXPECT_EQ(c[amx_emu::Op::kTilerelease], 1u);
    return c.loads_per_dot();
  };
  const GemmConfig wide{32, 2, 0, true, kLinear}, flat{16, 4, 0, true, kLinear};
  EXPECT_EQ(count(Int8GemmAmxConfig{wide}, true, true, 32, 2, 200, 64), 1.0);
  EXPECT_EQ(count(Bf16GemmAmxConfig{wide}, false, false, 32, 2, 200, 32), 1.0);
  EXPECT_EQ(count(Bf16GemmAmxConfig{wide, DType::kU8}, false, true, 17, 2, 200, 32), 1.0);
  EXPECT_EQ(count(Int8GemmAmxConfig{flat}, true, true, 5, 4, 64, 64), 1.25);
}

}  // namespace
}  // namespace quern::jit
