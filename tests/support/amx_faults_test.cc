// Every #UD and #GP of the architecture, and what does not fault.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/amx_code.h"
#include "tests/support/amx_execute.h"

namespace quern::amx_emu {
namespace {

using Change = std::function<void(Config&)>;

/// A configuration that everything below works with: C 4 x 32, A 4 x 12, B 3 x 32 bytes.
Config good_config() {
  return Config().tile(0, 4, 32).tile(1, 4, 12).tile(2, 3, 32).tile(3, 16, 64);
}

TileState good_state() {
  TileState s{};
  EXPECT_EQ(load_config(s, good_config().bytes), nullptr);
  std::memset(s.tile, 0x11, sizeof s.tile);
  s.written = 0xff;
  return s;
}

struct BadConfig {
  const char* rule;  ///< a part of the text
  Change change;
};

TEST(AmxFaults, LdtilecfgGeneralProtection) {
  std::vector<BadConfig> cases = {
      {"palette", [](Config& c) { c.bytes[0] = 2; }},
      {"palette", [](Config& c) { c.bytes[0] = 255; }},
      {"colsb is above 64", [](Config& c) { c.tile(0, 4, 65); }},
      {"colsb is above 64", [](Config& c) { c.tile(7, 4, 256); }},  // the high byte counts
      {"rows is above 16", [](Config& c) { c.tile(0, 17, 4); }},
      {"rows is above 16", [](Config& c) { c.tile(7, 255, 4); }},
      {"exactly one", [](Config& c) { c.tile(4, 0, 4); }},
      {"exactly one", [](Config& c) { c.tile(4, 1, 0); }},
  };
  for (int i = 2; i < 16; ++i) {
    cases.push_back({"reserved bytes", [i](Config& c) { c.bytes[i] = 1; }});
  }
  for (int i = 32; i < 48; ++i) {
    cases.push_back({"colsb of a register", [i](Config& c) { c.bytes[i] = 1; }});
  }
  for (int i = 56; i < 64; ++i) {
    cases.push_back({"rows of a register", [i](Config& c) { c.bytes[i] = 1; }});
  }
  for (const BadConfig& bad : cases) {
    Config config = good_config();
    bad.change(config);
    TileState s = good_state();
    const TileState before = s;
    const Fault f = execute(s, make_config(Op::kLdtilecfg, config.bytes));
    EXPECT_EQ(f.kind, FaultKind::kProtection) << bad.rule;
    ASSERT_NE(f.rule, nullptr) << bad.rule;
    EXPECT_NE(std::string(f.rule).find(bad.rule), std::string::npos) << f.rule;
    EXPECT_EQ(std::memcmp(&s, &before, sizeof s), 0) << "the old configuration stays";
  }
}

TEST(AmxFaults, LdtilecfgTakesWhatIsOnlyWrongLater) {
  TileState s{};
  for (int colsb = 1; colsb <= 64; ++colsb) {
    EXPECT_FALSE(execute(s, make_config(Op::kLdtilecfg, Config().tile(0, 1, colsb).bytes)));
  }
  EXPECT_FALSE(execute(s, make_config(Op::kLdtilecfg, Config().start_row(255).bytes)));
}

/// What instructions on the good state may be asked to do, and a state that makes them fault.
struct BadUse {
  const char* rule;
  std::function<void(TileState&)> change;
  std::vector<Instruction> instructions;
};

uint8_t memory[16 * 64];

std::vector<Instruction> moves(int tile) {
  return {make_move(Op::kTileloadd, tile, memory, 64),
          make_move(Op::kTileloaddt1, tile, memory, 64),
          make_move(Op::kTilestored, tile, memory, 64)};
}
std::vector<Instruction> dots(int c = 0, int a = 1, int b = 2) {
  std::vector<Instruction> all;
  for (int op = static_cast<int>(Op::kTdpbssd); op < kOps; ++op) {
    all.push_back(make_dot(static_cast<Op>(op), c, a, b));
  }
  return all;
}
std::vector<Instruction> operator+(std::vector<Instruction> x, const std::vector<Instruction>& y) {
  x.insert(x.end(), y.begin(), y.end());
  return x;
}

std::vector<BadUse> bad_uses() {
  const auto nothing = [](TileState&) {};
  const auto no_dword = [](int tile) {
    return [tile](TileState& s) { s.colsb[tile] = static_cast<uint16_t>(s.colsb[tile] - 1); };
  };
  const auto rows = [](int tile, int n) {
    return [=](TileState& s) { s.rows[tile] = static_cast<uint8_t>(n); };
  };
  const auto colsb = [](int tile, int n) {
    return [=](TileState& s) { s.colsb[tile] = static_cast<uint16_t>(n); };
  };
  return {
      {"not configured", [](TileState& s) { release(s); },
       moves(0) + dots() + std::vector<Instruction>{make_zero(0)}},
      {"no rows", nothing,
       moves(4) + dots(4, 1, 2) + dots(0, 4, 2) + dots(0, 1, 4) +
           std::vector<Instruction>{make_zero(4)}},
      {"multiple of 4", no_dword(0), moves(0) + dots()},
      {"multiple of 4", no_dword(1), moves(1) + dots()},
      {"multiple of 4", no_dword(2), moves(2) + dots()},
      {"start_row", [](TileState& s) { s.start_row = 4; }, moves(0)},
      {"start_row", [](TileState& s) { s.start_row = 255; }, moves(3)},
      {"same tile", nothing, dots(0, 0, 2) + dots(0, 1, 0) + dots(0, 1, 1) + dots(3, 3, 3)},
      {"rows of C and of A", rows(0, 5), dots()},
      {"rows of C and of A", rows(1, 3), dots()},
      {"colsb of C and of B", colsb(0, 28), dots()},
      {"colsb of C and of B", colsb(2, 36), dots()},
      {"colsb / 4 of A", colsb(1, 16), dots()},
      {"colsb / 4 of A", rows(2, 4), dots()},
  };
}

TEST(AmxFaults, Undefined) {
  for (const BadUse& bad : bad_uses()) {
    for (const Instruction& i : bad.instructions) {
      TileState s = good_state();
      bad.change(s);
      const TileState before = s;
      std::memset(memory, 0x22, sizeof memory);
      const std::string what = std::string(to_string(i.op)) + ": " + bad.rule;
      const Fault f = execute(s, i);
      EXPECT_EQ(f.kind, FaultKind::kUndefined) << what;
      ASSERT_NE(f.rule, nullptr) << what;
      EXPECT_NE(std::string(f.rule).find(bad.rule), std::string::npos) << what << " " << f.rule;
      EXPECT_EQ(std::memcmp(&s, &before, sizeof s), 0) << what;
      for (const uint8_t b : memory) ASSERT_EQ(b, 0x22) << what;
    }
  }
}

TEST(AmxFaults, TheGoodStateFaultsNowhere) {
  const std::vector<Instruction> all =
      moves(0) + moves(1) + moves(2) + moves(3) + dots() + std::vector<Instruction>{make_zero(0)};
  for (const Instruction& i : all) {
    TileState s = good_state();
    EXPECT_FALSE(execute(s, i)) << to_string(i.op);
  }
}

TEST(AmxFaults, TilezeroAsksForNoDwordsAndNoStartRow) {
  TileState s = good_state();
  s.colsb[0] = 31;
  s.start_row = 200;
  EXPECT_FALSE(execute(s, make_zero(0)));
}

TEST(AmxFaults, ConfigurationInstructionsNeedNoConfiguration) {
  TileState s{};
  EXPECT_FALSE(execute(s, make_release()));
  EXPECT_FALSE(execute(s, make_config(Op::kSttilecfg, memory)));
}

}  // namespace
}  // namespace quern::amx_emu
