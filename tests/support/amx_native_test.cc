// Where the CPU has AMX: the emulator against the hardware.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "jit/isa.h"
#include "tests/support/amx_execute.h"
#include "tests/support/amx_program.h"
#include "tests/support/amx_trap.h"
#include "tests/support/rng.h"

namespace quern::amx_emu {
namespace {

using test::Rng;

TEST(AmxNative, ScopeRefusesByDefault) {
  if (!native_amx()) GTEST_SKIP() << "this CPU has no AMX";
  const Scope refused;
  EXPECT_FALSE(refused.installed());
  EXPECT_NE(refused.reason().find("has AMX"), std::string::npos) << refused.reason();
  Options forced;
  forced.even_if_native = true;
  const Scope scope(forced);
  ASSERT_TRUE(scope.installed()) << scope.reason();
  const Code release([](Code& g) {
    g.tilerelease();
    g.ret();
  });
  const Counters before = total_counters();
  release.run();
  EXPECT_EQ(total_counters() - before, Counters{}) << "nothing traps";
}

TEST(AmxNative, AbsenceIsWhatDetectionSees) {
  const jit::CpuSource& cpu = jit::system_cpu();
  const bool bit = cpu.cpuid(0, 0).eax >= 7 && (cpu.cpuid(7, 0).edx >> 24 & 1) != 0;
  const bool state = (cpu.cpuid(1, 0).ecx >> 27 & 1) != 0 && (cpu.xgetbv(0) & 0x60000) == 0x60000;
  EXPECT_EQ(native_amx(), bit && state);
}

/// C, A and B as they are in memory: full rows, whatever the tile sizes.
struct Operands {
  Config config;
  Tile c, a, b;
};

/// Loads the three tiles, multiplies, stores C. Arguments: the operands, the output.
Code dot_code(Op op) {
  return Code([op](Code& g) {
    g.mov(g.eax, 64);
    g.ldtilecfg(g.ptr[g.rdi + offsetof(Operands, config)]);
    g.tileloadd(g.tmm0, g.ptr[g.rdi + g.rax + offsetof(Operands, c)]);
    g.tileloadd(g.tmm1, g.ptr[g.rdi + g.rax + offsetof(Operands, a)]);
    g.tileloadd(g.tmm2, g.ptr[g.rdi + g.rax + offsetof(Operands, b)]);
    emit(g, make_dot(op, 0, 1, 2), g.ptr[g.rdi]);
    g.tilestored(g.ptr[g.rsi + g.rax], g.tmm0);
    g.tilerelease();
    g.ret();
  });
}

void execute_same(Op op, const Operands& o, Tile* out) {
  TileState s{};
  ASSERT_FALSE(execute(s, make_config(Op::kLdtilecfg, o.config.bytes)));
  ASSERT_FALSE(execute(s, make_move(Op::kTileloadd, 0, &o.c, 64)));
  ASSERT_FALSE(execute(s, make_move(Op::kTileloadd, 1, &o.a, 64)));
  ASSERT_FALSE(execute(s, make_move(Op::kTileloadd, 2, &o.b, 64)));
  ASSERT_FALSE(execute(s, make_dot(op, 0, 1, 2)));
  ASSERT_FALSE(execute(s, make_move(Op::kTilestored, 0, out, 64)));
}

class AmxNativeDot : public ::testing::TestWithParam<Op> {
 protected:
  void SetUp() override {
    if (!native_amx()) GTEST_SKIP() << "this CPU has no AMX: nothing to compare execute() with";
    const jit::IsaFeatures f = jit::detect(jit::system_cpu(), IsaLevel::kAmx, nullptr);
    const Op op = GetParam();
    if (!f.amx_tile) GTEST_SKIP() << "the kernel does not permit tile data, or no AVX-512 here";
    if (op == Op::kTdpbf16ps && !f.amx_bf16) GTEST_SKIP() << "this CPU has no AMX-BF16";
    if (op == Op::kTdpfp16ps && !f.amx_fp16) GTEST_SKIP() << "this CPU has no AMX-FP16";
  }

  /// Random sizes; the fill is the caller's.
  void shape(Operands* o) {
    const auto size = [this] { return static_cast<int>(rng_.in(1, 16)); };
    const int m = size(), n = size(), k = size();
    o->config = Config().tile(0, m, 4 * n).tile(1, m, 4 * k).tile(2, k, 4 * n);
  }
  template <typename Dword>
  void fill(Tile* t, Dword dword) {
    for (int i = 0; i < 256; ++i) {
      const uint32_t value = dword();
      std::memcpy(&t->row[0][0] + 4 * i, &value, 4);
    }
  }

  Rng rng_{9};
};

class AmxNativeInt8 : public AmxNativeDot {};

TEST_P(AmxNativeInt8, BitsAreEqual) {
  const Code code = dot_code(GetParam());
  for (int repeat = 0; repeat < 500; ++repeat) {
    const auto o = std::make_unique<Operands>();
    shape(o.get());
    for (Tile* t : {&o->c, &o->a, &o->b}) {
      fill(t, [this] { return static_cast<uint32_t>(rng_.next()); });
    }
    Tile hardware{}, emulator{};
    code.run(o.get(), &hardware);
    execute_same(GetParam(), *o, &emulator);
    ASSERT_EQ(std::memcmp(&hardware, &emulator, sizeof hardware), 0) << "repeat " << repeat;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, AmxNativeInt8,
                         ::testing::Values(Op::kTdpbssd, Op::kTdpbsud, Op::kTdpbusd, Op::kTdpbuud),
                         [](const auto& op) { return std::string(to_string(op.param)); });

class AmxNativeFloat : public AmxNativeDot {};

/// The order of additions inside the hardware is not known for certain, so the bound is that of any
/// order: of K products and C, at most 2 K + 2 roundings, each of half an ulp of a partial sum, and
/// no partial sum exceeds the sum S of all magnitudes: |error| <= (2 K + 2) * 2^-24 * S, for either
/// of the two. How many bits are equal is printed.
TEST_P(AmxNativeFloat, WithinTheBoundOfAnyOrder) {
  const Op op = GetParam();
  const Code code = dot_code(op);
  // Between 2^-3 and 2 as bf16, between 2^-3 and 2 as fp16.
  const int low = op == Op::kTdpbf16ps ? 0x3e00 : 0x3000,
            span = op == Op::kTdpbf16ps ? 0x1ff : 0xfff;
  const auto half = [&] {
    return static_cast<uint32_t>(low + rng_.in(0, span) + (rng_.one_in(2) ? 0x8000 : 0));
  };
  int64_t elements = 0, equal = 0;
  for (int repeat = 0; repeat < 500; ++repeat) {
    const auto o = std::make_unique<Operands>();
    shape(o.get());
    fill(&o->c, [] { return 0x3fc00000u; });  // 1.5
    for (Tile* t : {&o->a, &o->b}) {
      fill(t, [&] {
        const uint32_t even = half();
        return even | half() << 16;
      });
    }
    Tile hardware{}, emulator{};
    code.run(o.get(), &hardware);
    execute_same(op, *o, &emulator);
    const int m = o->config.bytes[48], n = o->config.bytes[16] / 4, k = o->config.bytes[50];
    const double sum_of_magnitudes = 1.5 + 2.0 * k * 4.0;  // |a|, |b| < 2
    const double bound = 2 * (2 * 2 * k + 2) * 0x1p-24 * sum_of_magnitudes;
    for (int row = 0; row < m; ++row) {
      for (int column = 0; column < n; ++column) {
        float x, y;
        std::memcpy(&x, &hardware.row[row][4 * column], 4);
        std::memcpy(&y, &emulator.row[row][4 * column], 4);
        ++elements;
        equal += x == y;
        ASSERT_LE(std::fabs(double{x} - double{y}), bound) << x << " " << y;
      }
    }
  }
  RecordProperty("elements", std::to_string(elements));
  RecordProperty("equal_bits", std::to_string(equal));
  std::printf("%s: %lld of %lld elements have the hardware's bits\n", to_string(op),
              static_cast<long long>(equal), static_cast<long long>(elements));
}

INSTANTIATE_TEST_SUITE_P(Ops, AmxNativeFloat, ::testing::Values(Op::kTdpbf16ps, Op::kTdpfp16ps),
                         [](const auto& op) { return std::string(to_string(op.param)); });

}  // namespace
}  // namespace quern::amx_emu
