#include "tests/support/amx_decode.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/amx_code.h"
#include "tests/support/amx_text.h"
#include "tests/support/guard_buffer.h"

namespace quern::amx_emu {
namespace {

using Bytes = std::vector<uint8_t>;

Gprs some_gprs() {
  Gprs g;
  for (uint64_t i = 0; i < 16; ++i) g.r[i] = (i + 1) * 0x0123456789abcdu;
  g.rip = 0x7f0000001000;
  return g;
}

Decoded decode_bytes(const Bytes& bytes, const Gprs& gprs = some_gprs()) {
  return decode(bytes.data(), bytes.size(), gprs);
}

std::string text_of(const Decoded& d) {
  if (d.kind == DecodeKind::kNotAmx) return "not amx";
  if (d.kind == DecodeKind::kFault) return d.rule;
  return Text().add(d.instruction).c_str();
}

struct Encoding {
  Bytes bytes;
  const char* text;
};

// Encodings by GNU as 2.40.
const std::vector<Encoding> kEncodings = {
    {{0xc4, 0xe2, 0x78, 0x49, 0x00}, "ldtilecfg [rax]"},
    {{0xc4, 0xe2, 0x79, 0x49, 0x44, 0x24, 0x40}, "sttilecfg [rsp+0x40]"},
    {{0xc4, 0xe2, 0x78, 0x49, 0xc0}, "tilerelease"},
    {{0xc4, 0xe2, 0x7b, 0x49, 0xe8}, "tilezero tmm5"},
    {{0xc4, 0xe2, 0x7b, 0x4b, 0x4c, 0x88, 0x10}, "tileloadd tmm1,[rax+rcx*4+0x10]"},
    {{0xc4, 0x82, 0x79, 0x4b, 0x7c, 0x25, 0x00}, "tileloaddt1 tmm7,[r13+r12*1]"},
    {{0xc4, 0xc2, 0x7a, 0x4b, 0xb4, 0x71, 0x88, 0xa9, 0xcb, 0xed},
     "tilestored [r9+rsi*2-0x12345678],tmm6"},
    {{0xc4, 0xe2, 0x63, 0x5e, 0xca}, "tdpbssd tmm1,tmm2,tmm3"},
    {{0xc4, 0xe2, 0x62, 0x5e, 0xca}, "tdpbsud tmm1,tmm2,tmm3"},
    {{0xc4, 0xe2, 0x61, 0x5e, 0xca}, "tdpbusd tmm1,tmm2,tmm3"},
    {{0xc4, 0xe2, 0x60, 0x5e, 0xca}, "tdpbuud tmm1,tmm2,tmm3"},
    {{0xc4, 0xe2, 0x62, 0x5c, 0xca}, "tdpbf16ps tmm1,tmm2,tmm3"},
    {{0xc4, 0xe2, 0x63, 0x5c, 0xca}, "tdpfp16ps tmm1,tmm2,tmm3"},
    {{0xc4, 0xe2, 0x7b, 0x4b, 0x04, 0x20}, "tileloadd tmm0,[rax]"},  // no index: stride 0
    {{0xc4, 0xe2, 0x7b, 0x4b, 0x04, 0x0d, 0x10, 0, 0, 0}, "tileloadd tmm0,[rcx*1+0x10]"},
    // SIB base 101 without displacement is no base, whatever VEX.B says: not r13.
    {{0xc4, 0xc2, 0x7b, 0x4b, 0x04, 0x0d, 0x10, 0, 0, 0}, "tileloadd tmm0,[rcx*1+0x10]"},
    {{0xc4, 0xe2, 0x78, 0x49, 0x05, 0xf0, 0xff, 0xff, 0xff}, "ldtilecfg [rip-0x10]"},
    {{0xc4, 0xe2, 0x78, 0x49, 0x04, 0x25, 0x45, 0x23, 0x01, 0x00}, "ldtilecfg [0x12345]"},
    {{0xc4, 0x82, 0x78, 0x49, 0x04, 0xc8}, "ldtilecfg [r8+r9*8]"},
    {{0xc4, 0xc2, 0x78, 0x49, 0x04, 0x24}, "ldtilecfg [r12]"},
    {{0xc4, 0xc2, 0x78, 0x49, 0x45, 0x00}, "ldtilecfg [r13]"},
};

TEST(AmxDecode, EveryInstructionFromItsBytes) {
  for (const Encoding& e : kEncodings) {
    const Decoded d = decode_bytes(e.bytes);
    EXPECT_EQ(text_of(d), e.text);
    EXPECT_EQ(d.instruction.length, e.bytes.size()) << e.text;
  }
}

TEST(AmxDecode, ReadsNoByteBehindTheInstruction) {
  for (const Encoding& e : kEncodings) {
    const test::GuardBuffer page(e.bytes.size(), test::Flush::kEnd);
    std::memcpy(page.data(), e.bytes.data(), e.bytes.size());
    EXPECT_EQ(text_of(decode(page.data(), 15, some_gprs())), e.text);
  }
}

TEST(AmxDecode, OtherCodeAtTheEndOfAPage) {
  // ret; int3; vzeroupper; vaddps; mov; an AMX prefix of another map; vpdpbusd of the same map.
  const std::vector<Bytes> codes = {{0xc3},
                                    {0xcc},
                                    {0xc5, 0xf8, 0x77},
                                    {0xc5, 0xf4, 0x58, 0xc2},
                                    {0x48, 0x89, 0xc8},
                                    {0xc4, 0xe1, 0x78, 0x77},
                                    {0xc4, 0xe2, 0x75, 0x50, 0xc2},
                                    {0x66, 0x90},
                                    {0x0f, 0x0b}};
  for (const Bytes& code : codes) {
    const test::GuardBuffer page(code.size(), test::Flush::kEnd);
    std::memcpy(page.data(), code.data(), code.size());
    EXPECT_EQ(text_of(decode(page.data(), 15, some_gprs())), "not amx");
  }
}

TEST(AmxDecode, CutOffCodeIsNotAmx) {
  for (const Encoding& e : kEncodings) {
    for (size_t size = 0; size < e.bytes.size(); ++size) {
      EXPECT_EQ(text_of(decode(e.bytes.data(), size, some_gprs())), "not amx") << e.text;
    }
  }
}

struct Refusal {
  Bytes bytes;
  const char* rule;  ///< a part of it
};

TEST(AmxDecode, EveryEncodingThatFaults) {
  const std::vector<Refusal> refusals = {
      {{0xc4, 0xe2, 0xf8, 0x49, 0x00}, "VEX.W"},
      {{0xc4, 0xe2, 0xfb, 0x4b, 0x04, 0x08}, "VEX.W"},
      {{0xc4, 0xe2, 0xe3, 0x5e, 0xca}, "VEX.W"},
      {{0xc4, 0xe2, 0x7c, 0x49, 0x00}, "VEX.L"},
      {{0xc4, 0xe2, 0x7f, 0x4b, 0x04, 0x08}, "VEX.L"},
      {{0xc4, 0xe2, 0x67, 0x5e, 0xca}, "VEX.L"},
      {{0xc4, 0xe2, 0x70, 0x49, 0x00}, "VEX.vvvv"},
      {{0xc4, 0xe2, 0x70, 0x49, 0xc0}, "VEX.vvvv"},
      {{0xc4, 0xe2, 0x73, 0x49, 0xe8}, "VEX.vvvv"},
      {{0xc4, 0xe2, 0x73, 0x4b, 0x04, 0x08}, "VEX.vvvv"},
      {{0xc4, 0xe2, 0x78, 0x49, 0x08}, "ModRM"},                // ldtilecfg /1
      {{0xc4, 0x62, 0x78, 0x49, 0x00}, "extends no register"},  // ldtilecfg, VEX.R
      {{0xc4, 0xe2, 0x7a, 0x49, 0x00}, "ModRM"},                // F3 49 memory
      {{0xc4, 0xe2, 0x7b, 0x49, 0x00}, "ModRM"},                // F2 49 memory
      {{0xc4, 0xe2, 0x78, 0x49, 0xc1}, "ModRM"},                // tilerelease, rm 1
      {{0xc4, 0xe2, 0x78, 0x49, 0xc8}, "ModRM"},                // tilerelease, reg 1
      {{0xc4, 0x62, 0x78, 0x49, 0xc0}, "extends no register"},  // tilerelease, VEX.R
      {{0xc4, 0xc2, 0x78, 0x49, 0xc0}, "extends no register"},  // tilerelease, VEX.B
      {{0xc4, 0xe2, 0x79, 0x49, 0xc0}, "ModRM"},                // 66 49 register
      {{0xc4, 0xe2, 0x7a, 0x49, 0xc0}, "ModRM"},                // F3 49 register
      {{0xc4, 0xe2, 0x7b, 0x49, 0xe9}, "ModRM"},                // tilezero, rm 1
      {{0xc4, 0x62, 0x7b, 0x49, 0xe8}, "above tmm7"},           // tilezero tmm13
      {{0xc4, 0xe2, 0x78, 0x4b, 0x04, 0x08}, "ModRM"},          // 4B without prefix
      {{0xc4, 0xe2, 0x7b, 0x4b, 0xc8}, "ModRM"},                // tileloadd, register form
      {{0xc4, 0xe2, 0x7b, 0x4b, 0x08}, "SIB"},                  // tileloadd [rax], no SIB
      {{0xc4, 0xe2, 0x7b, 0x4b, 0x05, 0, 0, 0, 0}, "SIB"},      // tileloadd [rip]
      {{0xc4, 0x62, 0x7b, 0x4b, 0x04, 0x08}, "above tmm7"},     // tileloadd tmm8
      {{0xc4, 0x62, 0x7a, 0x4b, 0x04, 0x08}, "above tmm7"},     // tilestored tmm8
      {{0xc4, 0xe2, 0x63, 0x5e, 0x0a}, "ModRM"},                // tdpbssd with memory
      {{0xc4, 0xe2, 0x60, 0x5c, 0xca}, "ModRM"},                // 5C without prefix
      {{0xc4, 0xe2, 0x61, 0x5c, 0xca}, "ModRM"},                // 66 5C
      {{0xc4, 0x62, 0x63, 0x5e, 0xca}, "above tmm7"},           // C is tmm9
      {{0xc4, 0xc2, 0x63, 0x5e, 0xca}, "above tmm7"},           // A is tmm10
      {{0xc4, 0xe2, 0x23, 0x5e, 0xca}, "above tmm7"},           // B is tmm11
      {{0xc4, 0xe2, 0x61, 0x6c, 0xca}, "AMX-COMPLEX"},
      {{0xc4, 0xe2, 0x61, 0x48, 0xca}, "AMX-TF32"},
      {{0xc4, 0xe2, 0x7b, 0x4a, 0x04, 0x08}, "AMX-MOVRS"},
      {{0x67, 0xc4, 0xe2, 0x78, 0x49, 0x00}, "address-size"},
      {{0x64, 0xc4, 0xe2, 0x78, 0x49, 0x00}, "segment"},
      {{0x65, 0xc4, 0xe2, 0x7b, 0x4b, 0x04, 0x08}, "segment"},
      {{0x3e, 0xc4, 0xe2, 0x78, 0x49, 0xc0}, "segment"},
      {{0x66, 0xc4, 0xe2, 0x78, 0x49, 0xc0}, "LOCK, 66, F2 or F3"},
      {{0xf2, 0xc4, 0xe2, 0x78, 0x49, 0xc0}, "LOCK, 66, F2 or F3"},
      {{0xf3, 0xc4, 0xe2, 0x78, 0x49, 0xc0}, "LOCK, 66, F2 or F3"},
      {{0xf0, 0xc4, 0xe2, 0x78, 0x49, 0xc0}, "LOCK, 66, F2 or F3"},
      {{0x48, 0xc4, 0xe2, 0x78, 0x49, 0xc0}, "REX"},
  };
  for (const Refusal& r : refusals) {
    const Decoded d = decode_bytes(r.bytes);
    std::string hex;
    for (const uint8_t b : r.bytes) hex += Text().add_hex(b).add(" ").c_str();
    EXPECT_EQ(d.kind, DecodeKind::kFault) << hex;
    EXPECT_NE(text_of(d).find(r.rule), std::string::npos) << hex << text_of(d);
  }
}

TEST(AmxDecode, VexXHasNoMeaningWithoutAnIndex) {
  EXPECT_EQ(text_of(decode_bytes({0xc4, 0xa2, 0x63, 0x5e, 0xca})), "tdpbssd tmm1,tmm2,tmm3");
  EXPECT_EQ(text_of(decode_bytes({0xc4, 0xa2, 0x7b, 0x49, 0xe8})), "tilezero tmm5");
}

/// Every tile register in every position, as Xbyak encodes it.
TEST(AmxDecode, EveryTileRegister) {
  for (int op = 0; op < kOps; ++op) {
    for (int n = 0; n < kTiles * kTiles * kTiles; ++n) {
      Instruction want = make_dot(static_cast<Op>(op), n / 64, n / 8 % 8, n % 8);
      const Code code([&](Code& g) { emit(g, want, g.ptr[g.rax + g.rbx]); }, 64);
      const Decoded d = decode(code.getCode(), code.getSize(), some_gprs());
      ASSERT_EQ(d.kind, DecodeKind::kInstruction);
      const Instruction& got = d.instruction;
      ASSERT_EQ(got.op, want.op);
      ASSERT_EQ(got.length, code.getSize());
      const bool writes = is_dot(want.op) || is_load(want.op) || want.op == Op::kTilezero;
      const bool reads_src1 = is_dot(want.op) || want.op == Op::kTilestored;
      ASSERT_EQ(got.dst, writes ? want.dst : 0);
      ASSERT_EQ(got.src1, reads_src1 ? want.src1 : 0);
      ASSERT_EQ(got.src2, is_dot(want.op) ? want.src2 : 0);
    }
  }
}

constexpr int kDisplacements[] = {0,   1,    -1,      127,        -128,
                                  128, -129, 0x12345, 2147483647, -2147483647 - 1};

/// Base and index of every kind: 0..15 a register, 16 none.
TEST(AmxDecode, EveryAddressThatXbyakEmits) {
  const Gprs gprs = some_gprs();
  Xbyak::CodeGenerator g(64);
  const auto decode_one = [&] {
    const Decoded d = decode(g.getCode(), g.getSize(), gprs);
    EXPECT_EQ(d.kind, DecodeKind::kInstruction);
    EXPECT_EQ(d.instruction.length, g.getSize());
    g.reset();
    return d.instruction;
  };
  for (int base = 0; base <= 16; ++base) {
    for (int index = 0; index <= 16; ++index) {
      if (index == 4) continue;  // rsp
      for (const int scale : {1, 2, 4, 8}) {
        for (const int disp : kDisplacements) {
          Xbyak::RegExp e(static_cast<size_t>(int64_t{disp}));
          const uint64_t offset = static_cast<uint64_t>(int64_t{disp});
          const uint64_t base_value = base == 16 ? 0 : gprs.r[base];
          const uint64_t stride = index == 16 ? 0 : gprs.r[index] * static_cast<uint64_t>(scale);
          if (base != 16) e = e + Xbyak::Reg64(base);  // first, or scale 1 makes the index the base
          if (index != 16) e = e + Xbyak::Reg64(index) * scale;
          g.ldtilecfg(g.ptr[e]);
          ASSERT_EQ(decode_one().address, base_value + stride + offset)
              << base << " " << index << " " << scale << " " << disp;
          if (base == 16 || index == 16) continue;
          g.tileloadd(Xbyak::Tmm(3), g.ptr[e]);
          const Instruction load = decode_one();
          ASSERT_EQ(load.address, base_value + offset);
          ASSERT_EQ(load.stride, stride);
          g.tilestored(g.ptr[e], Xbyak::Tmm(3));
          const Instruction store = decode_one();
          ASSERT_EQ(store.address, base_value + offset);
          ASSERT_EQ(store.stride, stride);
        }
      }
    }
  }
}

TEST(AmxDecode, RipIsThatOfTheNextInstruction) {
  const Gprs gprs = some_gprs();
  for (const int disp : kDisplacements) {
    const Code code([&](Code& g) { g.sttilecfg(g.ptr[g.rip + disp]); }, 64);
    const Decoded d = decode(code.getCode(), code.getSize(), gprs);
    ASSERT_EQ(d.kind, DecodeKind::kInstruction);
    EXPECT_EQ(d.instruction.address, gprs.rip + 9 + static_cast<uint64_t>(int64_t{disp}));
  }
}

}  // namespace
}  // namespace quern::amx_emu
