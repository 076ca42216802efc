// Reports of faults, checks beyond hardware, permission, bad addresses.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <cstring>
#include <string>
#include <thread>

#include "tests/support/amx_trap_fixture.h"
#include "tests/support/guard_buffer.h"

namespace quern::amx_emu {
namespace {

using test::Flush;
using test::GuardBuffer;

/// ldtilecfg [rdi], then what the test emits; rsi and rdx are its arguments, rax is 64.
Code configured_code(const std::function<void(Code&)>& body) {
  return Code([&](Code& g) {
    g.mov(g.eax, 64);
    g.ldtilecfg(g.ptr[g.rdi]);
    body(g);
    g.tilerelease();
    g.ret();
  });
}

void run_in_scope(const Options& options, const std::function<void(Code&)>& body,
                  const Config& config, void* memory = nullptr) {
  const Scope scope(options);
  const Code code = configured_code(body);
  code.run(config.bytes, memory);
}

class AmxStrictDeathTest : public TrapTest {
 protected:
  void SetUp() override {
    TrapTest::SetUp();
    // Other tests' threads do not exist here, and the fork keeps the code's address.
    GTEST_FLAG_SET(death_test_style, "fast");
  }
  Config config_ = Config().all(2, 8).tile(3, 16, 64);
};

TEST_F(AmxStrictDeathTest, ReportNamesInstructionPlaceAndRule) {
  EXPECT_DEATH(
      run_in_scope(
          {}, [](Code& g) { g.tdpbssd(g.tmm0, g.tmm1, g.tmm1); }, config_),
      "amx emulator: tdpbssd tmm0,tmm1,tmm1 at rip 0x[0-9a-f]+: two operands are the same");
  Config wrong = config_;
  wrong.tile(7, 17, 8);
  const auto configure = [](Code& g) { g.ldtilecfg(g.ptr[g.rsi]); };
  EXPECT_DEATH(run_in_scope({}, configure, config_, wrong.bytes),
               "ldtilecfg \\[rsi\\] at rip 0x[0-9a-f]+: #GP: LDTILECFG: rows is above 16");
  EXPECT_DEATH(run_in_scope(
                   {},
                   [](Code& g) {
                     for (const int b : {0xc4, 0xe2, 0x7c, 0x49, 0xc0}) g.db(b);
                   },
                   config_),
               "an instruction at rip 0x[0-9a-f]+: #UD: VEX.L is 1");
}

TEST_F(AmxStrictDeathTest, ReadingATileThatNothingWrote) {
  uint8_t memory[1024] = {};
  const auto store = [](Code& g) { g.tilestored(g.ptr[g.rsi + g.rax], g.tmm2); };
  EXPECT_DEATH(run_in_scope({}, store, config_, memory),
               "tilestored .*strict: reads a tile that nothing wrote");
  const auto dot = [](Code& g) {  // C is read too
    g.tilezero(g.tmm1);
    g.tilezero(g.tmm2);
    g.tdpbuud(g.tmm0, g.tmm1, g.tmm2);
  };
  const Config square = Config().all(2, 8);
  EXPECT_DEATH(run_in_scope({}, dot, square), "tdpbuud .*strict: reads a tile that nothing wrote");
  const auto stale = [](Code& g) {  // written under the configuration before
    g.tilezero(g.tmm2);
    g.ldtilecfg(g.ptr[g.rdi]);
    g.tilestored(g.ptr[g.rsi + g.rax], g.tmm2);
  };
  EXPECT_DEATH(run_in_scope({}, stale, config_, memory), "strict: reads a tile");
  Options lenient;
  lenient.strict = false;
  std::memset(memory, 0x55, sizeof memory);
  run_in_scope(lenient, store, config_, memory);  // as on the machine: zeros
  EXPECT_EQ(memory[0], 0);
  EXPECT_EQ(memory[7], 0);
  EXPECT_EQ(memory[8], 0x55);
}

TEST_F(AmxStrictDeathTest, StrideZero) {
  uint8_t memory[64] = {};
  const auto load = [](Code& g) {
    g.xor_(g.eax, g.eax);
    g.tileloadd(g.tmm0, g.ptr[g.rsi + g.rax]);
  };
  EXPECT_DEATH(run_in_scope({}, load, config_, memory), "strict: several rows with stride 0");
  run_in_scope({}, load, Config().all(1, 8), memory);  // of one row it means nothing
  Options lenient;
  lenient.strict = false;
  run_in_scope(lenient, load, config_, memory);
}

TEST_F(AmxStrictDeathTest, ThreadThatEndsConfigured) {
  const auto leak = [this](const Options& options) {
    const Scope scope(options);
    std::thread([this] {
      const Code code([](Code& g) {
        g.ldtilecfg(g.ptr[g.rdi]);
        g.ret();
      });
      code.run(config_.bytes);
    }).join();
  };
  EXPECT_DEATH(leak({}), "strict: a thread ended with its tiles configured");
  const uint64_t before = total_counters()[Count::kLeaks];
  leak(chaining());
  EXPECT_EQ(total_counters()[Count::kLeaks] - before, 1u);
  // The next thread takes the memory over, not the tiles.
  std::thread([] {
    const Scope scope;
    const Code store([](Code& g) {
      g.sttilecfg(g.ptr[g.rdi]);
      g.ret();
    });
    uint8_t config[kConfigBytes] = {0xff};
    store.run(config);
    for (const uint8_t b : config) EXPECT_EQ(b, 0);
  }).join();
}

TEST_F(AmxStrictDeathTest, TileDataNeedsThePermission) {
  Options options;
  options.require_permission = true;
  uint8_t memory[1024] = {};
  const auto configuration = [](Code& g) { g.sttilecfg(g.ptr[g.rsi]); };
  run_in_scope(options, configuration, config_, memory);  // as Linux: no permission for these
  EXPECT_EQ(std::memcmp(memory, config_.bytes, kConfigBytes), 0);
  const auto zero = [](Code& g) { g.tilezero(g.tmm0); };
  EXPECT_DEATH(run_in_scope(options, zero, config_), "tilezero tmm0 .*#NM: tile data without");
  const auto load = [](Code& g) { g.tileloadd(g.tmm0, g.ptr[g.rsi + g.rax]); };
  EXPECT_DEATH(run_in_scope(options, load, config_, memory), "#NM: tile data without");
  note_permission(true);
  run_in_scope(options, zero, config_);
  run_in_scope(options, load, config_, memory);
}

TEST_F(AmxStrictDeathTest, LoadsAndStoresStopAtGuardPages) {
  const Config full = Config().all(16, 64);
  const auto load = [](Code& g) { g.tileloadd(g.tmm0, g.ptr[g.rsi + g.rax]); };
  const auto store = [](Code& g) {
    g.tilezero(g.tmm0);
    g.tilestored(g.ptr[g.rsi + g.rax], g.tmm0);
  };
  const GuardBuffer fits(16 * 64, Flush::kEnd);
  run_in_scope({}, load, full, fits.data());
  run_in_scope({}, store, full, fits.data());
  EXPECT_TRUE(fits.slack_intact());
  EXPECT_DEATH(run_in_scope({}, load, full, fits.data() + 1), "");
  EXPECT_DEATH(run_in_scope({}, store, full, fits.data() + 1), "");
  // 16 rows of 60 bytes: the last four bytes of the last row do not exist.
  const GuardBuffer narrow(15 * 64 + 60, Flush::kEnd);
  run_in_scope({}, load, Config().all(16, 60), narrow.data());
  run_in_scope({}, store, Config().all(16, 60), narrow.data());
}

TEST_F(AmxStrictDeathTest, CodeMayNotBeConfiguredFromBeyondThePage) {
  const GuardBuffer config(kConfigBytes, Flush::kEnd);
  std::memcpy(config.data(), config_.bytes, kConfigBytes);
  const Scope scope;
  const Code code = configured_code([](Code&) {});
  code.run(config.data());
  EXPECT_DEATH(code.run(config.data() + 1), "");
}

// A page fault in row 4 of a load: the handler sees what the hardware leaves, makes the page
// accessible and returns; the load goes on.
uint8_t* g_page = nullptr;
TileState g_at_fault;
void open_page(int, siginfo_t*, void*) {
  g_at_fault = thread_tiles();
  mprotect(g_page, 4096, PROT_READ | PROT_WRITE);
}

class AmxPageFault : public TrapTest {};

TEST_F(AmxPageFault, LeavesRowsBeforeItAndStartRow) {
  auto* memory = static_cast<uint8_t*>(
      mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 0x33, 8192);
  g_page = memory + 4096;
  mprotect(g_page, 4096, PROT_NONE);
  struct sigaction action = {}, old = {};
  action.sa_sigaction = open_page;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &old);
  {
    const Scope scope;
    const Code code = configured_code([](Code& g) {
      g.tileloadd(g.tmm0, g.ptr[g.rsi + g.rax]);
      g.tilestored(g.ptr[g.rdx + g.rax], g.tmm0);
    });
    uint8_t out[1024] = {};
    code.run(Config().all(16, 64).bytes, g_page - 4 * 64, out);
    for (const uint8_t b : out) ASSERT_EQ(b, 0x33);
  }
  sigaction(SIGSEGV, &old, nullptr);
  munmap(memory, 8192);
  EXPECT_EQ(g_at_fault.start_row, 4);
  EXPECT_EQ(g_at_fault.tile[0].row[3][63], 0x33);
  EXPECT_EQ(g_at_fault.tile[0].row[4][0], 0);
  EXPECT_EQ(g_at_fault.tile[0].row[15][63], 0);
}

}  // namespace
}  // namespace quern::amx_emu
