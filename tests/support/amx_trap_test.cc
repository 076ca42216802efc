#include "tests/support/amx_trap.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/amx_execute.h"
#include "tests/support/amx_trap_fixture.h"

namespace quern::amx_emu {
namespace {

using AmxTrap = TrapTest;

/// C (16 x 16) += A (16 x 16 dwords) * B by every dot product there is, each from zero and
/// with a store to an output of its own: all thirteen kinds, 29 instructions in a row. Arguments:
/// config, A and B (adjacent), outputs.
void emit_everything(Code& g) {
  g.mov(g.eax, 64);
  g.ldtilecfg(g.ptr[g.rdi]);
  g.tileloadd(g.tmm1, g.ptr[g.rsi + g.rax]);
  g.tileloaddt1(g.tmm2, g.ptr[g.rsi + g.rax + 1024]);
  constexpr Op kDots[] = {Op::kTdpbssd, Op::kTdpbsud,   Op::kTdpbusd,
                          Op::kTdpbuud, Op::kTdpbf16ps, Op::kTdpfp16ps};
  for (int i = 0; i < 6; ++i) {
    g.tilezero(g.tmm0);
    emit(g, make_dot(kDots[i], 0, 1, 2), g.ptr[g.rdi]);
    emit(g, make_dot(kDots[i], 0, 2, 1), g.ptr[g.rdi]);
    g.tilestored(g.ptr[g.rdx + g.rax + 1024 * i], g.tmm0);
  }
  g.sttilecfg(g.ptr[g.rdx + 6 * 1024]);
  g.tilerelease();
  g.ret();
}

struct Operands {
  Config config = Config().all(16, 64);
  std::vector<uint8_t> ab = std::vector<uint8_t>(2048);
  std::vector<uint8_t> out = std::vector<uint8_t>(6 * 1024 + 64);

  Operands() {
    // Also as floats: bytes 0x3c.. and 0x3d.. are small bf16 and fp16 numbers.
    for (size_t i = 0; i < ab.size(); ++i) {
      ab[i] = static_cast<uint8_t>(i % 2 ? 0x3c + i / 2 % 2 : i * 37 % 251);
    }
  }
  void run(const Code& code) { code.run(config.bytes, ab.data(), out.data()); }
};

/// The same by execute().
std::vector<uint8_t> expected_everything(const Operands& o) {
  std::vector<uint8_t> out(o.out.size());
  TileState s{};
  const auto step = [&s](const Instruction& i) { EXPECT_FALSE(execute(s, i)); };
  step(make_config(Op::kLdtilecfg, o.config.bytes));
  step(make_move(Op::kTileloadd, 1, o.ab.data(), 64));
  step(make_move(Op::kTileloadd, 2, o.ab.data() + 1024, 64));
  for (int i = 0; i < 6; ++i) {
    const Op op = static_cast<Op>(static_cast<int>(Op::kTdpbssd) + i);
    step(make_zero(0));
    step(make_dot(op, 0, 1, 2));
    step(make_dot(op, 0, 2, 1));
    step(make_move(Op::kTilestored, 0, out.data() + 1024 * i, 64));
  }
  step(make_config(Op::kSttilecfg, out.data() + 6 * 1024));
  return out;
}

TEST_F(AmxTrap, EveryInstructionThroughTheTrap) {
  const Scope scope;
  ASSERT_TRUE(scope.installed()) << scope.reason();
  EXPECT_TRUE(active());
  const Code code(emit_everything);
  Operands o;
  o.run(code);
  EXPECT_EQ(o.out, expected_everything(o));
  EXPECT_EQ(expect_released(), "");
}

TEST_F(AmxTrap, CountersAreExact) {
  const Scope scope;
  const Code code(emit_everything);
  Operands o;
  const Counters before = thread_counters();
  const Counters total_before = total_counters();
  o.run(code);
  const Counters c = thread_counters() - before;
  EXPECT_EQ(c, total_counters() - total_before);
  EXPECT_EQ(c[Op::kLdtilecfg], 1u);
  EXPECT_EQ(c[Op::kSttilecfg], 1u);
  EXPECT_EQ(c[Op::kTilerelease], 1u);
  EXPECT_EQ(c[Op::kTileloadd], 1u);
  EXPECT_EQ(c[Op::kTileloaddt1], 1u);
  EXPECT_EQ(c[Op::kTilezero], 6u);
  EXPECT_EQ(c[Op::kTilestored], 6u);
  for (int op = static_cast<int>(Op::kTdpbssd); op < kOps; ++op) EXPECT_EQ(c.ops[op], 2u);
  EXPECT_EQ(c.instructions(), 29u);
  EXPECT_EQ(c.dots(), 12u);
  EXPECT_EQ(c.loads(), 2u);
  EXPECT_DOUBLE_EQ(c.loads_per_dot(), 2.0 / 12);
  EXPECT_EQ(c[Count::kTraps], 1u);
  EXPECT_EQ(c[Count::kFaults], 0u);
  EXPECT_EQ(c[Count::kBytesLoaded], 2u * 1024);
  EXPECT_EQ(c[Count::kBytesStored], 6u * 1024);
  EXPECT_EQ(c[Count::kMacsIssued], 8u * 16384 + 4u * 8192);
  EXPECT_EQ(c[Count::kMacsUseful], c[Count::kMacsIssued]);
  EXPECT_DOUBLE_EQ(c.utilisation(), 1.0);
}

TEST_F(AmxTrap, BatchingChangesOnlyTheNumberOfTraps) {
  const Code code(emit_everything);
  Options options;
  Counters counted[2];
  std::vector<uint8_t> out[2];
  for (const bool batch : {false, true}) {
    options.batch = batch;
    const Scope scope(options);
    ASSERT_TRUE(scope.installed()) << scope.reason();
    Operands o;
    const Counters before = thread_counters();
    o.run(code);
    counted[batch] = thread_counters() - before;
    out[batch] = o.out;
  }
  EXPECT_EQ(out[0], out[1]);
  EXPECT_EQ(counted[0][Count::kTraps], 29u);
  EXPECT_EQ(counted[1][Count::kTraps], 1u);
  counted[0].counts[static_cast<int>(Count::kTraps)] = 1;
  EXPECT_EQ(counted[0], counted[1]);
}

TEST_F(AmxTrap, SumsTheSizesOfPartialTiles) {
  const Scope scope;
  const Code code([](Code& g) {
    g.mov(g.eax, 64);
    g.ldtilecfg(g.ptr[g.rdi]);
    g.tilezero(g.tmm0);
    g.tileloadd(g.tmm1, g.ptr[g.rsi + g.rax]);
    g.tileloadd(g.tmm2, g.ptr[g.rsi + g.rax]);
    g.tdpbssd(g.tmm0, g.tmm1, g.tmm2);
    g.tilestored(g.ptr[g.rdx + g.rax], g.tmm0);
    g.tilerelease();
    g.ret();
  });
  const Config config = Config().tile(0, 3, 20).tile(1, 3, 8).tile(2, 2, 20);
  Operands o;
  const Counters before = thread_counters();
  code.run(config.bytes, o.ab.data(), o.out.data());
  const Counters c = thread_counters() - before;
  EXPECT_EQ(c[Count::kBytesLoaded], 3u * 8 + 2 * 20);
  EXPECT_EQ(c[Count::kBytesStored], 3u * 20);
  EXPECT_EQ(c[Count::kMacsUseful], 3u * 5 * 8);
  EXPECT_EQ(c[Count::kMacsIssued], 16384u);
  EXPECT_DOUBLE_EQ(c.utilisation(), 120.0 / 16384);
}

/// General registers (all but rsp), flags, an xmm register, MXCSR and the red zone.
TEST_F(AmxTrap, NothingElseOfTheThreadChanges) {
  const Scope scope;
  struct Machine {
    uint64_t gpr[16];
    uint64_t flags, red_zone;
    float xmm[4];
    uint32_t mxcsr;
  };
  Machine out = {};
  const Code code([](Code& g) {
    const Xbyak::Reg64 saved[] = {g.rbx, g.rbp, g.r12, g.r13, g.r14, g.r15, g.rsi};
    for (const auto& r : saved) g.push(r);
    g.movups(g.xmm7, g.ptr[g.rdx]);
    g.mov(g.dword[g.rsp - 64], 0x1f80 + 0x6000);  // round towards zero
    g.ldmxcsr(g.ptr[g.rsp - 64]);
    for (int i = 0; i < 16; ++i) {
      if (i != 4 && i != 7) g.mov(Xbyak::Reg64(i), 0x1111111111111111u * static_cast<uint64_t>(i));
    }
    g.mov(g.qword[g.rsp - 8], g.rdi);
    g.cmp(g.eax, g.ecx);  // flags: 0 < 0x11111111, below
    g.ldtilecfg(g.ptr[g.rdi]);
    for (int t = 0; t < 3; ++t) g.tilezero(Xbyak::Tmm(t));
    g.tdpbf16ps(g.tmm0, g.tmm1, g.tmm2);
    g.tilerelease();
    g.xchg(g.rsi, g.ptr[g.rsp]);  // the argument; the value goes to the stack
    for (int i = 0; i < 16; ++i) {
      if (i != 4 && i != 6) g.mov(g.ptr[g.rsi + 8 * i], Xbyak::Reg64(i));
    }
    g.mov(g.rax, g.ptr[g.rsp - 8]);
    g.mov(g.ptr[g.rsi + offsetof(Machine, red_zone)], g.rax);
    g.stmxcsr(g.ptr[g.rsi + offsetof(Machine, mxcsr)]);
    g.movups(g.ptr[g.rsi + offsetof(Machine, xmm)], g.xmm7);
    g.pushfq();
    g.pop(g.rax);
    g.mov(g.ptr[g.rsi + offsetof(Machine, flags)], g.rax);
    g.pop(g.rax);
    g.mov(g.ptr[g.rsi + 8 * 6], g.rax);
    g.mov(g.dword[g.rsp - 64], 0x1f80);
    g.ldmxcsr(g.ptr[g.rsp - 64]);
    for (int i = 5; i >= 0; --i) g.pop(saved[i]);
    g.ret();
  });
  const Config config = Config().all(1, 4);
  const float xmm[4] = {1, 2, 3, 4};
  code.run(config.bytes, &out, xmm);
  for (uint64_t i = 0; i < 16; ++i) {
    if (i == 4 || i == 7) continue;
    EXPECT_EQ(out.gpr[i], 0x1111111111111111u * i) << i;
  }
  EXPECT_EQ(out.gpr[7], reinterpret_cast<uint64_t>(config.bytes));
  EXPECT_EQ(out.red_zone, reinterpret_cast<uint64_t>(config.bytes));
  EXPECT_EQ(out.mxcsr & ~0x3fu, 0x1f80u + 0x6000);
  EXPECT_EQ(std::memcmp(out.xmm, xmm, sizeof xmm), 0);
  EXPECT_EQ(out.flags & 0x8c1, 0x081u) << "0 - 0x11111111: CF and SF, not ZF or OF";
}

/// A tile instruction, and the ret or jump behind it, may be the last thing before a page that
/// cannot be read.
TEST_F(AmxTrap, CodeMayEndWithItsPage) {
  const Scope scope;
  const Code release([](Code& g) {
    g.tilerelease();
    g.ret();
  });
  const size_t page = 4096;
  auto* memory = static_cast<uint8_t*>(
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  uint8_t* entry = memory + page - release.getSize();
  std::memcpy(entry, release.getCode(), release.getSize());
  ASSERT_EQ(mprotect(memory, page, PROT_READ | PROT_EXEC), 0);
  ASSERT_EQ(mprotect(memory + page, page, PROT_NONE), 0);
  const Counters before = thread_counters();
  reinterpret_cast<void (*)()>(entry)();
  EXPECT_EQ((thread_counters() - before)[Op::kTilerelease], 1u);
  munmap(memory, 2 * page);
}

TEST_F(AmxTrap, SixteenThreadsEachOnItsOwnTiles) {
  const Scope scope;
  const Code code(emit_everything);
  const Operands model;
  const std::vector<uint8_t> want = expected_everything(model);
  const Counters before = total_counters();
  std::vector<std::string> wrong(16);
  std::vector<std::thread> threads;
  for (std::string& text : wrong) {
    threads.emplace_back([&] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        Operands o;
        o.run(code);
        if (o.out != want) text = "differs";
      }
      const Counters mine = thread_counters();
      if (mine.instructions() != 20 * 29) text += " " + std::to_string(mine.instructions());
    });
  }
  for (std::thread& t : threads) t.join();
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
  const Counters c = total_counters() - before;
  EXPECT_EQ(c.instructions(), 16u * 20 * 29);
  EXPECT_EQ(c[Count::kTraps], 16u * 20);
  EXPECT_EQ(c[Count::kLeaks], 0u);
}

TEST_F(AmxTrap, TilesAreTheThreadsOwn) {
  const Scope scope;
  const Code configure([](Code& g) {
    g.ldtilecfg(g.ptr[g.rdi]);
    g.ret();
  });
  const Config config = Config().tile(2, 7, 12);
  configure.run(config.bytes);
  std::thread([] { EXPECT_FALSE(thread_tiles().configured()); }).join();
  const TileState tiles = thread_tiles();
  EXPECT_EQ(tiles.rows[2], 7);
  EXPECT_EQ(tiles.colsb[2], 12);
  EXPECT_EQ(expect_released(), "tiles are still configured: 0x0 0x0 7x12 0x0 0x0 0x0 0x0 0x0");
  reset_thread();
  EXPECT_EQ(expect_released(), "");
}

}  // namespace
}  // namespace quern::amx_emu
