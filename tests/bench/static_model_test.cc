// The static model: ports of single instructions and of small pieces of code against sums done by
// hand, then the calls of the AMX kernels against closed forms and the bars of the design.
#include "bench/static_model.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/static_kernels.h"
#include "bench/static_report.h"
#include "bench/static_trace.h"
#include "bench/usage_error.h"

namespace quern::bench {
namespace {

class StaticModel : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_decode()) GTEST_SKIP() << "built without Zydis 4: no code can be read";
  }
};

jit::GeneratedCode code_of(std::vector<uint8_t> bytes) {
  jit::GeneratedCode code;
  code.name = "sample";
  code.bytes = std::move(bytes);
  return code;
}

std::vector<uint64_t> trace(const std::vector<CodeInstruction>& code,
                            const std::vector<int64_t>& args) {
  const auto* bytes = reinterpret_cast<const std::byte*>(args.data());
  return trace_call(code, {bytes, args.size() * sizeof args[0]});
}

/// Assembled by GNU as.
struct Sample {
  const char* text;
  std::vector<uint8_t> bytes;
  PortUse use;
};

const Sample kSamples[] = {
    {"vpaddd zmm0, zmm1, zmm2", {0x62, 0xf1, 0x75, 0x48, 0xfe, 0xc2}, {.p05 = 1, .slots = 1}},
    {"vpaddd zmm0, zmm1, [rsi]",
     {0x62, 0xf1, 0x75, 0x48, 0xfe, 0x06},
     {.load = 1, .p05 = 1, .slots = 1}},
    {"vmovups zmm0, [rsi]", {0x62, 0xf1, 0x7c, 0x48, 0x10, 0x06}, {.load = 1, .slots = 1}},
    {"vmovups zmm0{k1}{z}, [rsi]",
     {0x62, 0xf1, 0x7c, 0xc9, 0x10, 0x06},
     {.load = 1, .p05 = 1, .slots = 1}},
    {"vmovups [rsi], zmm0", {0x62, 0xf1, 0x7c, 0x48, 0x11, 0x06}, {.store = 1, .slots = 1}},
    {"vmovdqu16 [rsi]{k1}, ymm0", {0x62, 0xf1, 0xff, 0x29, 0x7f, 0x06}, {.store = 1, .slots = 1}},
    {"vmovups [rsi], ymm0", {0xc5, 0xfc, 0x11, 0x06}, {.store = 0.5, .slots = 1}},
    {"vmovaps zmm0, zmm1", {0x62, 0xf1, 0x7c, 0x48, 0x28, 0xc1}, {.p05 = 1, .slots = 1}},
    {"vmovaps zmm0{k1}, zmm1", {0x62, 0xf1, 0x7c, 0x49, 0x28, 0xc1}, {.p05 = 1, .slots = 1}},
    {"vbroadcastss zmm0, [rsi]", {0x62, 0xf2, 0x7d, 0x48, 0x18, 0x06}, {.load = 1, .slots = 1}},
    {"vpbroadcastd zmm0, eax", {0x62, 0xf2, 0x7d, 0x48, 0x7c, 0xc0}, {.p5 = 1, .slots = 1}},
    {"vcvtneps2bf16 ymm0, zmm0",
     {0x62, 0xf2, 0x7e, 0x48, 0x72, 0xc0},
     {.p0 = 1, .p5 = 1, .slots = 2}},
    {"vdpbf16ps zmm0, zmm1, zmm2",
     {0x62, 0xf2, 0x76, 0x48, 0x52, 0xc2},
     {.p0 = 2, .p5 = 2, .slots = 4}},
    {"vpdpbusd zmm0, zmm1, zmm2", {0x62, 0xf2, 0x75, 0x48, 0x50, 0xc2}, {.p05 = 1, .slots = 1}},
    {"vdivps zmm0, zmm1, zmm2",
     {0x62, 0xf1, 0x74, 0x48, 0x5e, 0xc2},
     {.p0 = 2, .p05 = 1, .divider = 10, .slots = 3}},
    {"vpslld zmm0, zmm1, 7", {0x62, 0xf1, 0x7d, 0x48, 0x72, 0xf1, 0x07}, {.p0 = 1, .slots = 1}},
    {"vpmovzxwd zmm0{k1}{z}, [rsi]",
     {0x62, 0xf2, 0x7d, 0xc9, 0x33, 0x06},
     {.load = 1, .p5 = 1, .slots = 1}},
    {"vpmovdw [rsi]{k1}, zmm0",
     {0x62, 0xf2, 0x7e, 0x49, 0x33, 0x06},
     {.store = 1, .p5 = 2, .slots = 2}},
    {"vpcmpeqd k1, zmm1, zmm2", {0x62, 0xf1, 0x75, 0x48, 0x76, 0xca}, {.p5 = 1, .slots = 1}},
    {"vpermw zmm0, zmm1, zmm2",
     {0x62, 0xf2, 0xf5, 0x48, 0x8d, 0xc2},
     {.p0 = 1, .p5 = 1, .slots = 2}},
    {"vpmovzxbd zmm0, [rsi]",
     {0x62, 0xf2, 0x7d, 0x48, 0x31, 0x06},
     {.load = 1, .p5 = 1, .slots = 1}},
    {"vcvtph2ps zmm0, [rsi]",
     {0x62, 0xf2, 0x7d, 0x48, 0x13, 0x06},
     {.load = 1, .p5 = 1, .p05 = 1, .slots = 2}},
    {"vpmulld zmm0, zmm1, dword [rsi]{1to16}",
     {0x62, 0xf2, 0x75, 0x58, 0x40, 0x06},
     {.load = 1, .p05 = 2, .slots = 2}},
    {"vpsrld zmm0, [rsi], 4",
     {0x62, 0xf1, 0x7d, 0x48, 0x72, 0x16, 0x04},
     {.load = 1, .p0 = 1, .slots = 1}},
    {"vpshufd zmm0, zmm1, 0xd8", {0x62, 0xf1, 0x7d, 0x48, 0x70, 0xc1, 0xd8}, {.p5 = 1, .slots = 1}},
    {"ldmxcsr [rsi]", {0x0f, 0xae, 0x16}, {.load = 1, .scalar = 1, .slots = 1, .alone = 5}},
    {"kmovd k1, eax", {0xc5, 0xfb, 0x92, 0xc8}, {.p5 = 1, .slots = 1}},
    {"add rax, 64", {0x48, 0x83, 0xc0, 0x40}, {.scalar = 1, .slots = 1}},
    {"add rax, [rdi+8]", {0x48, 0x03, 0x47, 0x08}, {.load = 1, .scalar = 1, .slots = 1}},
    {"mov rax, [rdi+8]", {0x48, 0x8b, 0x47, 0x08}, {.load = 1, .slots = 1}},
    {"lea rax, [rdi+8]", {0x48, 0x8d, 0x47, 0x08}, {.scalar = 1, .slots = 1}},
    {"push rbx", {0x53}, {.store = 0.5, .slots = 1}},
    {"pop rbx", {0x5b}, {.load = 1, .slots = 1}},
    {"prefetchw [rsi]", {0x0f, 0x0d, 0x0e}, {.load = 1, .slots = 1}},
    {"nop", {0x90}, {.slots = 1}},
    {"vzeroupper", {0xc5, 0xf8, 0x77}, {.slots = 4}},
    {"tilezero tmm0", {0xc4, 0xe2, 0x7b, 0x49, 0xc0}, {.slots = 1}},
    {"tileloadd tmm6, [rsi+rax]", {0xc4, 0xe2, 0x7b, 0x4b, 0x34, 0x06}, {.load = 16, .slots = 8}},
    {"tilestored [rsi+rax], tmm0",
     {0xc4, 0xe2, 0x7a, 0x4b, 0x04, 0x06},
     {.store = 16, .slots = 16}},
    {"tdpbsud tmm0, tmm4, tmm6", {0xc4, 0xe2, 0x4a, 0x5e, 0xc4}, {.tile = 16, .slots = 1}},
    {"tdpbf16ps tmm0, tmm4, tmm6", {0xc4, 0xe2, 0x4a, 0x5c, 0xc4}, {.tile = 16, .slots = 1}},
    {"ldtilecfg [rsi]", {0xc4, 0xe2, 0x78, 0x49, 0x06}, {.load = 1, .slots = 1, .alone = 204}},
    {"tilerelease", {0xc4, 0xe2, 0x78, 0x49, 0xc0}, {.slots = 1, .alone = 13}},
};

TEST_F(StaticModel, PortsOfSingleInstructions) {
  for (const Sample& sample : kSamples) {
    const auto code = decode(code_of(sample.bytes));
    ASSERT_EQ(code.size(), 1u) << sample.text;
    const PortUse use = use_of(code[0]);
    EXPECT_EQ(use.tile, sample.use.tile) << sample.text;
    EXPECT_EQ(use.load, sample.use.load) << sample.text;
    EXPECT_EQ(use.store, sample.use.store) << sample.text;
    EXPECT_EQ(use.p0, sample.use.p0) << sample.text;
    EXPECT_EQ(use.p5, sample.use.p5) << sample.text;
    EXPECT_EQ(use.p05, sample.use.p05) << sample.text;
    EXPECT_EQ(use.divider, sample.use.divider) << sample.text;
    EXPECT_EQ(use.scalar, sample.use.scalar) << sample.text;
    EXPECT_EQ(use.slots, sample.use.slots) << sample.text;
    EXPECT_EQ(use.alone, sample.use.alone) << sample.text;
  }
}

TEST_F(StaticModel, CyclesOfPorts) {
  const PortUse use{
      .tile = 9, .load = 10, .store = 7, .p0 = 4, .p5 = 6, .p05 = 8, .scalar = 10, .slots = 12};
  EXPECT_EQ(cycles(use, Port::kTile), 9);
  EXPECT_EQ(cycles(use, Port::kLoad), 5);
  EXPECT_EQ(cycles(use, Port::kStore), 7);
  EXPECT_EQ(cycles(use, Port::kVector), 9);  // (4 + 6 + 8) / 2
  EXPECT_EQ(cycles({.p0 = 4, .p5 = 1, .p05 = 1}, Port::kVector), 4);
  EXPECT_EQ(cycles({.p0 = 1, .p5 = 5, .p05 = 1}, Port::kVector), 5);
  EXPECT_EQ(cycles({.p0 = 2, .divider = 10}, Port::kDivider), 10);
  EXPECT_EQ(cycles(use, Port::kScalar), 2);
  EXPECT_EQ(cycles(use, Port::kFrontEnd), 2);
  EXPECT_EQ(binding({.load = 10, .store = 6}), Port::kStore);
}

// mov rcx, [rdi]
// 1: the canonical step of two by two tiles (4 tileloadd, 4 tdpbsud); add rsi, 64; dec rcx; jnz 1b
// stage: two tilestored; mov rcx, [rdi+8]
// to_f32: 2: vmovups zmm0, [rdx]; vcvtdq2ps zmm0, zmm0; vmovups [r8], zmm0; dec rcx; jnz 2b; ret
jit::GeneratedCode two_by_two() {
  jit::GeneratedCode code =
      code_of({0x48, 0x8b, 0x0f, 0xc4, 0xe2, 0x7b, 0x4b, 0x34, 0x06, 0xc4, 0xe2, 0x7b, 0x4b, 0x24,
               0x06, 0xc4, 0xe2, 0x4a, 0x5e, 0xc4, 0xc4, 0xe2, 0x7b, 0x4b, 0x2c, 0x06, 0xc4, 0xe2,
               0x4a, 0x5e, 0xd5, 0xc4, 0xe2, 0x7b, 0x4b, 0x3c, 0x06, 0xc4, 0xe2, 0x42, 0x5e, 0xcc,
               0xc4, 0xe2, 0x42, 0x5e, 0xdd, 0x48, 0x83, 0xc6, 0x40, 0x48, 0xff, 0xc9, 0x75, 0xcb,
               0xc4, 0xe2, 0x7a, 0x4b, 0x04, 0x02, 0xc4, 0xe2, 0x7a, 0x4b, 0x0c, 0x02, 0x48, 0x8b,
               0x4f, 0x08, 0x62, 0xf1, 0x7c, 0x48, 0x10, 0x02, 0x62, 0xf1, 0x7c, 0x48, 0x5b, 0xc0,
               0x62, 0xd1, 0x7c, 0x48, 0x11, 0x00, 0x48, 0xff, 0xc9, 0x75, 0xe9, 0xc3});
  code.sections = {{0x00, "prologue"}, {0x03, "k_loop"}, {0x38, "stage"}, {0x48, "to_f32"}};
  return code;
}

TEST_F(StaticModel, PhasesAreSummedAndPortsInThemOverlap) {
  const jit::GeneratedCode sample = two_by_two();
  const auto code = decode(sample);
  const CallModel m = model_call(code, trace(code, {10, 32}), sample.sections);
  EXPECT_EQ(m.tile_dots, 40u);
  EXPECT_EQ(m.tile_loads, 40u);
  EXPECT_EQ(m.tile_stores, 2u);
  ASSERT_EQ(m.phases.size(), 4u);
  EXPECT_EQ(m.phases[0].name, "start");
  EXPECT_EQ(m.phases[0].duration(), 0.5);  // one load
  EXPECT_EQ(m.phases[1].name, "k_loop");
  EXPECT_EQ(m.phases[1].duration(), 10 * 64);
  EXPECT_EQ(cycles(m.phases[1].use, Port::kLoad), 10 * 32);
  EXPECT_EQ(m.phases[1].use.slots, 10 * (4 * 8 + 4 + 3));
  EXPECT_EQ(m.phases[2].name, "stage");
  EXPECT_EQ(m.phases[2].duration(), 32);
  EXPECT_EQ(m.phases[3].name, "rows");
  EXPECT_EQ(binding(m.phases[3].use), Port::kStore);
  EXPECT_EQ(m.phases[3].duration(), 32);
  EXPECT_EQ(m.phases[3].use.slots, 32 * 5 + 1);
  EXPECT_EQ(m.duration(), 0.5 + 640 + 32 + 32);
  EXPECT_DOUBLE_EQ(m.occupancy(), 640 / 704.5);
  EXPECT_EQ(binding(m.total()), Port::kTile);
}

// mov rax, [rdi]; mov rcx, rax; shr rcx, 2; jz 2f; 1: nop; dec rcx; jnz 1b
// 2: and eax, 3; jz 4f; xor ecx, ecx; 3: inc rcx; cmp rcx, rax; jl 3b; 4: push rbx; pop rbx; ret
TEST_F(StaticModel, CountsComeFromTheCodeItself) {
  const auto code =
      decode(code_of({0x48, 0x8b, 0x07, 0x48, 0x89, 0xc1, 0x48, 0xc1, 0xe9, 0x02, 0x74, 0x06,
                      0x90, 0x48, 0xff, 0xc9, 0x75, 0xfa, 0x83, 0xe0, 0x03, 0x74, 0x0a, 0x31,
                      0xc9, 0x48, 0xff, 0xc1, 0x48, 0x39, 0xc1, 0x7c, 0xf8, 0x53, 0x5b, 0xc3}));
  ASSERT_EQ(code.size(), 16u);
  ASSERT_TRUE(code[4].is("nop"));
  ASSERT_TRUE(code[10].is("inc"));
  for (int64_t k = 0; k <= 40; ++k) {
    const auto times = trace(code, {k});
    EXPECT_EQ(times[4], static_cast<uint64_t>(k / 4)) << k;
    EXPECT_EQ(times[10], static_cast<uint64_t>(k % 4)) << k;
    EXPECT_EQ(times[15], 1u) << k;
  }
}

TEST_F(StaticModel, WhatCannotBeFollowedIsRefused) {
  const auto refuses = [](std::vector<uint8_t> bytes) {
    const auto code = decode(code_of(std::move(bytes)));
    EXPECT_THROW(trace(code, {1}), std::runtime_error) << code[0].mnemonic;
  };
  refuses({0x48, 0x85, 0xc0, 0x74, 0x00, 0xc3});              // test rax, rax; jz: rax is not known
  refuses({0x48, 0x83, 0x3e, 0x01, 0x74, 0x00, 0xc3});        // cmp qword [rsi], 1: nor is memory
  refuses({0x48, 0x83, 0x7f, 0x08, 0x01, 0x74, 0x00, 0xc3});  // [rdi+8]: beyond the arguments
  refuses({0x74, 0x00, 0xc3});                                // jz: no flags yet
  refuses({0xeb, 0x10, 0xc3});                                // jmp out of the code
  refuses({0x90});                                            // no return
  refuses({0x5b, 0xc3});                                      // pop without push
  EXPECT_THROW(decode(code_of({0x06})), std::runtime_error);  // no instruction in 64-bit mode
}

// Tiles of C (16 by 16, for each panel) times tiles of K, from the numbers in the names and from
// nothing that the generators share.
struct Family {
  const char* front;
  int64_t tile_depth;
};
constexpr Family kFamilies[] = {{"int8_gemm.amx.s8u8bf16", 64},
                                {"bf16_gemm.amx.bf16bf16bf16", 32},
                                {"bf16_gemm.amx.bf16u8f32", 32}};

TEST_F(StaticModel, DotsAreTheTilesOfTheProblem) {
  for (const Family& family : kFamilies) {
    for (const auto& [mr, nr] : {std::pair{32, 2}, {32, 1}, {16, 4}, {16, 3}, {16, 1}}) {
      for (const std::string& prefetch : {std::string("0"), std::to_string(4 * nr)}) {
        const StaticKernel kernel =
            static_kernel(std::string(family.front) + ".mr" + std::to_string(mr) + ".nr" +
                          std::to_string(nr) + ".pf" + prefetch + ".epi=none");
        for (const int64_t m : {mr - 15, mr - 6, mr}) {
          for (const int64_t n : {16 * nr - 15, 16 * nr}) {
            for (const int64_t k : {1, 31, 32, 33, 64, 65, 100, 4096, 4097}) {
              const StaticCall call{m, n, k};
              const CallModel model = model_of(kernel, call);
              const int64_t tiles =
                  (m > 16 ? 2 : 1) * nr * (k / family.tile_depth + (k % family.tile_depth != 0));
              EXPECT_EQ(static_cast<int64_t>(model.tile_dots), tiles)
                  << kernel.code.name << " m " << m << " n " << n << " k " << k;
              EXPECT_EQ(tile_dots_of(kernel, call), tiles) << kernel.code.name;
              EXPECT_EQ(model.tile_stores, static_cast<uint64_t>((m > 16 ? 2 : 1) * nr));
            }
          }
        }
      }
    }
  }
}

constexpr const char* kEpilogues[] = {
    "none",          "bias",          "silu_mul",          "residual",
    "bias+silu_mul", "bias+residual", "silu_mul+residual", "bias+silu_mul+residual"};

/// Kernels whose rows of C take too long beside 4096 cycles of dot products (NOTES.md). One that
/// reaches the bar has to leave this list.
bool known_to_be_short(const std::string& name) {
  const auto has = [&name](const char* word) { return name.find(word) != std::string::npos; };
  return has("int8") && has("silu_mul");
}

// design.md section 8: int8 and bf16 at M >= 32.
TEST_F(StaticModel, OccupancyOfWholeCallsAtK4096) {
  std::vector<std::string> names;
  for (const char* family : {"int8_gemm.amx.s8u8", "bf16_gemm.amx.bf16bf16"}) {
    for (const char* shape : {"bf16.mr32.nr2.pf8", "bf16.mr32.nr2.pf1", "f32.mr32.nr2.pf8"}) {
      for (const char* epilogue : kEpilogues) {
        names.push_back(std::string(family) + shape + ".epi=" + epilogue);
      }
    }
  }
  for (const StaticRow& row : static_rows(names)) {
    const auto dots = static_cast<double>(row.model.tile_dots);
    EXPECT_EQ(row.call.m, 32);
    EXPECT_EQ(row.call.k, 4096);
    EXPECT_EQ(row.model.tile_dots, row.kernel.find("int8") == 0 ? 256u : 512u) << row.kernel;
    EXPECT_EQ(row.model.total().tile, 16 * dots) << row.kernel;
    EXPECT_LE(static_cast<double>(row.model.tile_loads), dots) << row.kernel;
    EXPECT_EQ(binding(row.model.total()), Port::kTile) << row.kernel;
    EXPECT_LT(row.alone, row.model.occupancy()) << row.kernel;
    if (known_to_be_short(row.kernel)) {
      EXPECT_LT(row.model.occupancy(), 0.90) << row.kernel << ": no longer short, take it out";
      EXPECT_GE(row.model.occupancy(), 0.835) << row.kernel;
    } else {
      EXPECT_GE(row.model.occupancy(), 0.90) << row.kernel;
    }
  }
}

// design.md section 8: groups of 128 at M = 32, on weights that were decoded before. W4A8 waits for
// its loads, and for little else.
TEST_F(StaticModel, OccupancyOfInt4InGroupsOf128) {
  const auto front = [](const char* types) {
    return std::string("grouped_gemm.amx.") + types + "bf16.mr32.nr2.pf2.epi=none.t64.sf16.";
  };
  for (const char* zeros : {"z8", "zu8", "zf32"}) {
    const StaticRow row = static_rows({front("bf16bf16") + zeros})[0];
    EXPECT_EQ(row.model.tile_dots, 512u) << row.kernel;
    EXPECT_GE(row.model.occupancy(), 0.75) << row.kernel;
  }
  for (const auto& [types, zeros] :
       {std::pair{"s8s8", "z8"}, std::pair{"s8s8", "zu8"}, std::pair{"s8u8", "zf32"}}) {
    const StaticRow row = static_rows({front(types) + zeros})[0];
    const PortUse total = row.model.total();
    EXPECT_EQ(row.model.tile_dots, 256u) << row.kernel;
    EXPECT_GE(row.model.occupancy(), 0.60) << row.kernel;
    EXPECT_GE(cycles(total, binding(total)), 0.90 * row.model.duration()) << row.kernel;
  }
}

// The same of fp8 in blocks of 128, whose scales are f32.
TEST_F(StaticModel, OccupancyOfFp8InBlocksOf128) {
  const StaticRow row =
      static_rows({"grouped_gemm.amx.bf16bf16bf16.mr32.nr2.pf2.epi=none.t64.sf32.z8"})[0];
  EXPECT_EQ(row.model.tile_dots, 512u);
  EXPECT_GE(row.model.occupancy(), 0.75);
}

// The dot products come with what surrounds them: phases in order, none missing, nothing counted
// twice.
TEST_F(StaticModel, PhasesOfAKernel) {
  for (const std::string& name : default_static_kernels()) {
    const CallModel model = static_rows({name})[0].model;
    std::vector<std::string> phases;
    for (const CodePhase& phase : model.phases) phases.push_back(phase.name);
    const StaticKernel kernel = static_kernel(name);
    std::vector<std::string> want = {"start", "k_loop", "stage", "rows", "end"};
    if (!kernel.tiles) want = {"start", "k_loop", "rows", "end"};
    if (kernel.decodes) want = {"start", "panels", "end"};
    EXPECT_EQ(phases, want) << name;
    if (!kernel.tiles) continue;
    EXPECT_EQ(model.phases[1].use.tile, model.total().tile) << name;
    EXPECT_EQ(model.total().alone, 0) << name;
  }
}

// Groups of 128 of K: their tiles, stored once each; 16 rows of 16 columns are folded one by one.
TEST_F(StaticModel, GroupsAreMultipliedAndFolded) {
  struct Kind {
    const char* types;
    int64_t tile_depth;
  };
  for (const Kind& kind : {Kind{"s8s8", 64}, Kind{"s8u8", 64}, Kind{"bf16bf16", 32}}) {
    for (const int64_t k : {128, 256, 4096}) {
      const StaticKernel kernel = static_kernel(std::string("grouped_gemm.amx.") + kind.types +
                                                "bf16.mr32.nr2.pf2.epi=none.t64.sf16.z8");
      const StaticCall call{32, 32, k};
      const CallModel model = model_of(kernel, call);
      const int64_t tiles = 4 * k / kind.tile_depth;
      EXPECT_EQ(static_cast<int64_t>(model.tile_dots), tiles) << kernel.code.name << ' ' << k;
      EXPECT_EQ(tile_dots_of(kernel, call), tiles) << kernel.code.name << ' ' << k;
      EXPECT_EQ(model.tile_loads, model.tile_dots) << kernel.code.name << ' ' << k;
      EXPECT_EQ(static_cast<int64_t>(model.tile_stores), 4 * k / 128) << kernel.code.name;
    }
  }
}

// Eight depths of a panel become two lines of s8 or four of bf16, each stored whole.
TEST_F(StaticModel, DecodingIsBoundByStoresOrVectors) {
  for (const auto& [name, lines] : {std::pair{"grouped_decode.avx512.u4s8.z8", 2},
                                    std::pair{"grouped_decode.avx512.u4bf16.z8", 4},
                                    std::pair{"grouped_decode.avx512.e2m1bf16", 4},
                                    std::pair{"grouped_decode.avx512.e4m3bf16", 4},
                                    std::pair{"nvfp4_decode.avx512.e2m1bf16", 4}}) {
    const StaticRow row = static_rows({name})[0];
    EXPECT_EQ(row.call.n, 32) << name;
    EXPECT_EQ(cycles(row.model.phases[1].use, Port::kStore), 2.0 * 4096 / 8 * lines) << name;
    EXPECT_EQ(row.model.tile_dots, 0u) << name;
  }
}

TEST_F(StaticModel, ACallAloneLoadsAndReleasesTheConfiguration) {
  const StaticKernel kernel = static_kernel("int8_gemm.amx.s8u8bf16.mr32.nr2.pf8.epi=none");
  const CallModel between = model_of(kernel, {32, 32, 4096, false});
  const CallModel alone = model_of(kernel, {32, 32, 4096, true});
  EXPECT_EQ(alone.total().alone, 204 + 13);
  EXPECT_GT(alone.duration(), between.duration() + 204 + 13);
  EXPECT_EQ(alone.tile_dots, between.tile_dots);
}

TEST_F(StaticModel, KernelsWithoutTilesAreModelledToo) {
  const auto rows = static_rows({"int8_gemm.avx512.s8u8bf16.mr6.nr4.pf0.epi=none"});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].model.tile_dots, 0u);
  // 24 vpdpbusd for every 4 of 4096 depths, two a cycle: nothing else needs as long.
  EXPECT_EQ(binding(rows[0].model.total()), Port::kVector);
  EXPECT_GE(cycles(rows[0].model.total(), Port::kVector), 24 * 1024 / 2);
  EXPECT_LE(rows[0].model.duration(), 24 * 1024 / 2 * 1.1);
}

TEST_F(StaticModel, NamesThatAreNoneAreRefused) {
  for (const char* name :
       {"", "nonsense", "int8_gemm/m:1/n:1/k:1", "int8_gemm.amx.s8u8bf16.mr32.nr4.pf0.epi=none",
        "int8_gemm.amx.s8u8bf16.mr31.nr2.pf0.epi=none"}) {
    EXPECT_THROW(static_rows({name}), UsageError) << name;
  }
}

TEST_F(StaticModel, EveryReportSaysThatNothingWasMeasured) {
  const auto rows = static_rows({"int8_gemm.amx.s8u8bf16.mr32.nr2.pf0.epi=none"});
  EXPECT_NE(static_text(rows).find("not validated on hardware"), std::string::npos);
  const auto json = nlohmann::json::parse(static_json(rows));
  EXPECT_EQ(json["note"], "static model, not validated on hardware");
  ASSERT_EQ(json["rows"].size(), 1u);
  const auto& row = json["rows"][0];
  EXPECT_EQ(row["tile_dots"], 256);
  EXPECT_EQ(row["tile_loads"], 256);
  EXPECT_EQ(row["port_cycles"]["tile"], 4096.0);
  EXPECT_EQ(row["binding"], "tile");
  double sum = 0;
  for (const auto& phase : row["phases"]) sum += phase["cycles"].get<double>();
  EXPECT_DOUBLE_EQ(sum, row["cycles"].get<double>());
}

}  // namespace
}  // namespace quern::bench
