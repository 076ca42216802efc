// The decoder, and the text of its instructions, against binutils.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/support/amx_decode.h"
#include "tests/support/amx_text.h"
#include "tests/support/rng.h"
#include "tests/support/temp_dir.h"

namespace quern::amx_emu {
namespace {

using test::Rng;

/// Every encoding in a slot of its own, filled up with nops: what objdump makes of the rest of a
/// slot does not reach the next.
constexpr size_t kSlot = 32;

bool have_objdump() {
  return std::system("objdump --version >/dev/null 2>&1") == 0;
}

/// objdump's text by offset.
std::map<size_t, std::string> disassemble(const std::vector<uint8_t>& code) {
  std::map<size_t, std::string> lines;
  const test::TempDir dir;
  const std::string path = dir.file("code.bin");
  test::write_file(path, std::string(code.begin(), code.end()));
  const std::string command =
      "objdump -D -z -b binary -m i386:x86-64 -M intel --no-show-raw-insn " + path;
  FILE* pipe = popen(command.c_str(), "r");
  char line[512];
  while (pipe && std::fgets(line, sizeof line, pipe)) {
    char* colon = std::strchr(line, ':');
    char* end = nullptr;
    const size_t offset = std::strtoul(line, &end, 16);
    if (!colon || end != colon) continue;
    std::string text = colon + 1;
    text = text.substr(0, text.find('#'));
    text.erase(0, text.find_first_not_of(" \t"));
    text.erase(text.find_last_not_of(" \t\n") + 1);
    lines[offset] = text;
  }
  if (pipe) pclose(pipe);
  return lines;
}

void replace(std::string* text, const std::string& from, const std::string& to) {
  const size_t at = text->find(from);
  if (at != std::string::npos) text->replace(at, from.size(), to);
}

/// objdump shows some things that mean nothing: a displacement of 0, the absent index riz, a
/// segment; and negative displacements from rip and of nothing as 64-bit numbers.
std::string plain(std::string text) {
  replace(&text, "+0x0]", "]");
  for (const char* none : {"+riz*1", "+riz*2", "+riz*4", "+riz*8"}) replace(&text, none, "");
  replace(&text, "ds:0x", "[0x");
  if (text.find('[') != std::string::npos && text.find(']') == std::string::npos) {
    const size_t comma = text.find(',', text.find('['));
    text.insert(comma == std::string::npos ? text.size() : comma, "]");
  }
  const size_t riz = text.find("[riz*");
  if (riz != std::string::npos) {  // and no base: an absolute address
    const size_t disp = riz + std::strlen("[riz*1");
    const uint64_t address = std::strtoull(text.c_str() + disp, nullptr, 16);
    text.replace(riz + 1, text.find(']') - riz - 1, Text().add_hex(address).c_str());
  }
  const size_t rip = text.find("[rip+0xffffffff");
  if (rip != std::string::npos) {
    const uint64_t disp = std::strtoull(text.c_str() + rip + 5, nullptr, 16);
    const size_t end = text.find(']', rip);
    text.replace(rip + 4, end - rip - 4, Text().add("-").add_hex(-disp).c_str());
  }
  return text;
}

/// A VEX encoding of an AMX opcode with random fields; `mostly_valid` keeps those that no
/// instruction may change as they must be, most of the time.
std::vector<uint8_t> random_encoding(Rng& rng, bool mostly_valid) {
  constexpr uint8_t kOpcodes[] = {0x49, 0x4b, 0x4b, 0x5c, 0x5e};
  const auto byte = [&rng] { return static_cast<uint8_t>(rng.next()); };
  uint8_t p1 = static_cast<uint8_t>((byte() & 0xe0) | 2);
  uint8_t p2 = byte();
  const uint8_t opcode = rng.pick(kOpcodes);
  uint8_t modrm = byte();
  if (mostly_valid) {
    const bool dot = opcode >= 0x5c;
    p2 &= 0x7b;                                      // W, L
    if (!dot) p2 |= 0x78;                            // vvvv
    if (dot) p1 |= 0xe0, p2 |= 0x40, modrm |= 0xc0;  // registers below 8
    if (opcode == 0x4b) modrm = static_cast<uint8_t>((modrm & 0x38) | 4 | (byte() % 3) << 6);
    if (opcode == 0x4b) p1 |= 0x80;
    if (opcode == 0x49 && modrm < 0xc0) p1 |= 0x80, modrm &= 0xc7;
  }
  std::vector<uint8_t> code = {0xc4, p1, p2, opcode, modrm};
  for (int i = 0; i < 5; ++i) code.push_back(byte());  // SIB and displacement
  if (rng.one_in(4)) code[6] = code[7] = code[8] = code[9] = rng.one_in(2) ? 0 : 0xff;
  code.resize(kSlot, 0x90);
  return code;
}

/// objdump marks operands that may not be the same tile; execute() faults on them.
bool repeats_a_tile(const Instruction& i) {
  return is_dot(i.op) && (i.dst == i.src1 || i.dst == i.src2 || i.src1 == i.src2);
}
bool drop_marks(std::string* text) {
  bool any = false;
  for (int i = 0; i < 3; ++i) {
    any |= text->find("/(bad)") != std::string::npos;
    replace(text, "/(bad)", "");
  }
  return any;
}

struct Slots {
  std::vector<uint8_t> code;
  std::map<size_t, std::string> texts;
};

Slots random_slots(uint64_t seed, int count, bool mostly_valid) {
  Rng rng(seed);
  Slots slots;
  for (int i = 0; i < count; ++i) {
    const std::vector<uint8_t> one = random_encoding(rng, mostly_valid);
    slots.code.insert(slots.code.end(), one.begin(), one.end());
  }
  slots.texts = disassemble(slots.code);
  return slots;
}

std::string hex_of(const uint8_t* code) {
  std::string hex;
  for (int i = 0; i < 10; ++i) hex += Text().add_hex(code[i]).add(" ").c_str();
  return hex;
}

class AmxObjdump : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!have_objdump()) GTEST_SKIP() << "objdump is not installed";
  }
};

TEST_F(AmxObjdump, SameTextForEveryInstruction) {
  constexpr int kCount = 20000;
  const Slots slots = random_slots(1, kCount, true);
  int instructions = 0;
  std::map<std::string, int> kinds;
  for (size_t at = 0; at < slots.code.size(); at += kSlot) {
    const Decoded d = decode(&slots.code[at], 15, Gprs{});
    if (d.kind != DecodeKind::kInstruction) continue;
    ++instructions;
    ++kinds[to_string(d.instruction.op)];
    const auto text = slots.texts.find(at);
    ASSERT_NE(text, slots.texts.end()) << hex_of(&slots.code[at]);
    std::string theirs = text->second;
    EXPECT_EQ(drop_marks(&theirs), repeats_a_tile(d.instruction)) << hex_of(&slots.code[at]);
    EXPECT_EQ(Text().add(d.instruction).c_str(), plain(theirs)) << hex_of(&slots.code[at]);
    // And its length: objdump's next line begins there.
    EXPECT_EQ(slots.texts.count(at + d.instruction.length), 1u) << hex_of(&slots.code[at]);
  }
  EXPECT_GT(instructions, kCount / 2);
  EXPECT_EQ(kinds.size(), static_cast<size_t>(kOps)) << "every instruction occurs";
}

/// objdump 2.40 does not look at ModRM.reg and VEX.R of ldtilecfg and sttilecfg, at ModRM.rm of
/// tilezero, nor at VEX.R and VEX.B where they extend nothing.
bool objdump_is_lax(const uint8_t* code) {
  if (code[3] != 0x49) return false;
  const uint8_t p1 = code[1], modrm = code[4];
  if (modrm < 0xc0) return (modrm & 0x38) != 0 || (p1 & 0x80) == 0;
  return (modrm & 7) != 0 || (p1 & 0xa0) != 0xa0;
}

TEST_F(AmxObjdump, WhatTheDecoderRefusesIsBad) {
  const Slots slots = random_slots(2, 20000, false);
  int refused = 0;
  for (size_t at = 0; at < slots.code.size(); at += kSlot) {
    const Decoded d = decode(&slots.code[at], 15, Gprs{});
    const std::string& text = slots.texts.at(at);
    const bool bad = text.find("(bad)") != std::string::npos;
    if (d.kind == DecodeKind::kInstruction) {
      EXPECT_EQ(bad, repeats_a_tile(d.instruction)) << text << " " << hex_of(&slots.code[at]);
      continue;
    }
    ++refused;
    EXPECT_EQ(d.kind, DecodeKind::kFault);
    EXPECT_TRUE(bad || objdump_is_lax(&slots.code[at]))
        << text << " " << d.rule << " " << hex_of(&slots.code[at]);
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace quern::amx_emu
