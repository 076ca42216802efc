#include "jit/code_listing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "jit/code_dump.h"
#include "jit/int8_gemm_avx512.h"
#include "tests/jit/busy_kernel.h"

namespace quern::jit {
namespace {

#define SKIP_WITHOUT_DISASSEMBLER(listing) \
  if ((listing).empty()) GTEST_SKIP() << "not run: there is no Zydis library here"

// Offsets, bytes and instructions by hand, from the instruction set's manual.
TEST(CodeListing, SectionsLabelsBytesAndInstructions) {
  const std::string listing = code_listing(*generate_busy(false));
  SKIP_WITHOUT_DISASSEMBLER(listing);
  EXPECT_EQ(listing, R"(
; ---- prologue
  0000  53                        push rbx
  0001  55                        push rbp
  0002  4154                      push r12
  0004  4155                      push r13
  0006  4156                      push r14
  0008  4157                      push r15

; ---- spin
  000a  488b07                    mov rax, [rdi]
  000d  48c7c3ffffffff            mov rbx, 0xFFFFFFFFFFFFFFFF
  0014  48c7c5ffffffff            mov rbp, 0xFFFFFFFFFFFFFFFF
  001b  49c7c4ffffffff            mov r12, 0xFFFFFFFFFFFFFFFF
  0022  49c7c5ffffffff            mov r13, 0xFFFFFFFFFFFFFFFF
  0029  49c7c6ffffffff            mov r14, 0xFFFFFFFFFFFFFFFF
  0030  49c7c7ffffffff            mov r15, 0xFFFFFFFFFFFFFFFF
  0037  660f1f840000000000        nop [rax+rax*1], ax
L1:
  0040  90                        nop
  0041  48ffc8                    dec rax
  0044  0f85f6ffffff              jnz L1
  004a  e90e000000                jmp L3

; ---- return
L2:
  004f  c5f877                    vzeroupper
  0052  415f                      pop r15
  0054  415e                      pop r14
  0056  415d                      pop r13
  0058  415c                      pop r12
  005a  5d                        pop rbp
  005b  5b                        pop rbx
  005c  c3                        ret

; ---- outlying
L3:
  005d  90                        nop
  005e  e9ecffffff                jmp L2
)");
}

// The constant 1.0f would decode as an instruction; so would half of an instruction at the end.
TEST(CodeListing, DataIsNotDecodedAndBadBytesAreShown) {
  GeneratedCode code;
  code.name = "sample";
  code.bytes = {0xc5, 0xfa, 0x10, 0x05, 0x08, 0x00, 0x00, 0x00,  // vmovss xmm0, [rip+8]
                0x06,                                            // no instruction in 64-bit mode
                0xc3, 0x90,                                      // ret, padding
                0xff,                                            // and half a call
                0x66, 0x90, 0x90, 0x90,                          // padding, now as data
                0x00, 0x00, 0x80, 0x3f,                          // 1.0f
                0x01, 0x02};
  code.sections = {{0, "load"}, {12, std::string(kConstantsSection)}};
  const std::string listing = code_listing(code);
  SKIP_WITHOUT_DISASSEMBLER(listing);
  EXPECT_EQ(listing, R"(
; ---- load
  0000  c5fa100508000000          vmovss xmm0, dword ptr [rip+0x08]  ; C1
  0008  06                        (bad)
  0009  c3                        ret
  000a  90                        nop
  000b  ff                        (bad)

; ---- constants
  000c  66909090                  .long 0x90909066  ; -5.70204662e-29
C1:
  0010  0000803f                  .long 0x3f800000  ; 1
  0014  0102                      .byte
)");
}

TEST(CodeListing, WithoutSectionsOrCodeThereIsStillAListing) {
  GeneratedCode code;
  code.bytes = {0xc3};
  const std::string listing = code_listing(code);
  SKIP_WITHOUT_DISASSEMBLER(listing);
  EXPECT_EQ(listing, "  0000  c3                        ret\n");
}

// A real kernel: every section of the generator is a heading, every label that is named is defined
// once, and nothing is undecodable.
TEST(CodeListing, OfAKernelIsComplete) {
  Int8GemmAvx512Config config;
  config.mr = 2;
  config.nr = 2;
  config.epilogue.activation = Activation::kSiluMul;
  const auto code = generate(config);
  ASSERT_TRUE(code.ok());
  const std::string listing = code_listing(*code);
  SKIP_WITHOUT_DISASSEMBLER(listing);
  EXPECT_EQ(listing.find("(bad)"), std::string::npos);
  for (const CodeSection& section : code->sections) {
    EXPECT_NE(listing.find("\n; ---- " + section.name + "\n"), std::string::npos) << section.name;
  }
  EXPECT_NE(listing.find("vpdpbusd zmm"), std::string::npos);
  EXPECT_NE(listing.find(".long 0x3f800000  ; 1\n"), std::string::npos);
  EXPECT_NE(listing.find("  ; C12\n"), std::string::npos) << "the sign bit is the last constant";
  std::istringstream lines(listing);
  std::vector<std::string> defined, used;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    if (line.back() == ':') defined.push_back(line.substr(0, line.size() - 1));
    const std::string last = line.substr(line.rfind(' ') + 1);
    if (last.size() > 1 && (last[0] == 'L' || last[0] == 'C')) used.push_back(last);
  }
  for (const std::string& label : used) {
    if (label.back() == ':') continue;
    EXPECT_EQ(std::count(defined.begin(), defined.end(), label), 1) << label;
  }
  EXPECT_GT(used.size(), 12u);
}

TEST(DumpAsm, BeginsWithTheRegisterMap) {
  Int8GemmAvx512Config config;
  const auto code = generate(config);
  ASSERT_TRUE(code.ok());
  Kernel kernel;
  kernel.entry = reinterpret_cast<const void*>(uintptr_t{0x7f0000001000});
  const std::string text = dump_asm(*code, kernel);
  EXPECT_EQ(text.find("; " + code->name + "\n"), 0u) << text;
  for (const char* part : {" rdi=args", " zmm0=acc.0.0", " k1=columns.0"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
  const bool listed = !code_listing(*code).empty();
  EXPECT_EQ(text.find("ret\n") != std::string::npos, listed);
  EXPECT_EQ(text.find(objdump_command(code->name, kernel.entry)) != std::string::npos, !listed);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
}

}  // namespace
}  // namespace quern::jit
