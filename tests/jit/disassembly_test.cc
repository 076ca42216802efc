// Every instruction of every kernel of the config matrix, read by an independent disassembler: what
// it needs of the CPU, where it jumps, what it does to the stack and to the caller's registers.
#include <gtest/gtest.h>

#include "tests/jit/config_matrix.h"

#if QUERN_HAVE_ZYDIS
#include <Zydis/Zydis.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quern::jit {
namespace {

struct Instruction {
  size_t offset = 0;
  ZydisDecodedInstruction info{};
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT]{};

  size_t end() const { return offset + info.length; }
  bool is(ZydisMnemonic mnemonic) const { return info.mnemonic == mnemonic; }
};

/// Offsets where code ends and data begins: all constants come last.
size_t code_bytes(const GeneratedCode& code) {
  for (const CodeSection& section : code.sections) {
    if (section.name == kConstantsSection) return section.offset;
  }
  return code.bytes.size();
}

std::vector<Instruction> decode(const GeneratedCode& code) {
  ZydisDecoder decoder;
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  std::vector<Instruction> all;
  for (size_t at = 0, end = code_bytes(code); at < end;) {
    Instruction i;
    i.offset = at;
    ZydisDecoderContext context;
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, &context, code.bytes.data() + at,
                                                    end - at, &i.info)) ||
        !ZYAN_SUCCESS(ZydisDecoderDecodeOperands(&decoder, &context, &i.info, i.operands,
                                                 i.info.operand_count))) {
      ADD_FAILURE() << code.name << ": no instruction at offset " << at;
      return all;
    }
    at += i.info.length;
    all.push_back(i);
  }
  return all;
}

/// Instruction sets by level, in Zydis' names without the vector width. BMI2 and AVX (vzeroupper
/// and other VEX forms): no CPU has AVX-512 without them.
bool allowed(std::string_view set, IsaLevel level, bool bf16) {
  static const std::set<std::string_view> baseline = {
      "I86",  "I186",    "I286REAL", "I386",         "I486REAL", "PENTIUMREAL",  "PPRO",
      "CMOV", "FAT_NOP", "LONGMODE", "PREFETCH_NOP", "SSE",      "SSE_PREFETCH", "SSE2"};
  static const std::set<std::string_view> avx512 = {
      "AVX", "AVX2", "BMI1", "BMI2", "AVX512F", "AVX512BW", "AVX512DQ", "AVX512_VNNI"};
  static const std::set<std::string_view> amx = {"AMX_TILE", "AMX_INT8", "AMX_BF16"};
  for (const std::string_view suffix : {"_128N", "_128", "_256", "_512", "_SCALAR", "_KOP"}) {
    if (set.ends_with(suffix)) {
      set.remove_suffix(suffix.size());
      break;
    }
  }
  if (baseline.count(set) != 0) return true;
  if (level >= IsaLevel::kAvx512 && (avx512.count(set) != 0 || (bf16 && set == "AVX512_BF16"))) {
    return true;
  }
  return level >= IsaLevel::kAmx && amx.count(set) != 0;
}

void check_instruction_sets(const AnyKernel& kernel, const std::vector<Instruction>& all) {
  for (const Instruction& i : all) {
    const char* set = ZydisISASetGetString(i.info.meta.isa_set);
    ASSERT_TRUE(allowed(set, kernel.level, kernel.bf16))
        << kernel.name << ": " << ZydisMnemonicGetString(i.info.mnemonic) << " at offset "
        << i.offset << " needs " << set;
  }
}

// Branches go to instructions of the kernel, rip-relative operands to its constants, and nothing
// runs off the end of the code.
void check_targets(const GeneratedCode& code, const std::vector<Instruction>& all) {
  std::set<uint64_t> starts;
  for (const Instruction& i : all) starts.insert(i.offset);
  for (const Instruction& i : all) {
    for (int n = 0; n < i.info.operand_count_visible; ++n) {
      const ZydisDecodedOperand& operand = i.operands[n];
      ZyanU64 target = 0;
      const bool relative = operand.type == ZYDIS_OPERAND_TYPE_IMMEDIATE && operand.imm.is_relative;
      const bool constant =
          operand.type == ZYDIS_OPERAND_TYPE_MEMORY && operand.mem.base == ZYDIS_REGISTER_RIP;
      if (!relative && !constant) continue;
      ASSERT_TRUE(ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(&i.info, &operand, i.offset, &target)));
      if (relative) {
        ASSERT_EQ(starts.count(target), 1u)
            << code.name << ": the branch at " << i.offset << " goes to " << target;
      } else {
        ASSERT_GE(target, code_bytes(code)) << code.name << ": operand at " << i.offset;
        ASSERT_LE(target + 4, code.bytes.size()) << code.name << ": operand at " << i.offset;
        ASSERT_EQ(target % 4, 0u) << code.name << ": operand at " << i.offset;
      }
    }
  }
  ASSERT_FALSE(all.empty());
  ASSERT_TRUE(all.back().is(ZYDIS_MNEMONIC_RET) || all.back().is(ZYDIS_MNEMONIC_JMP))
      << code.name << ": the code runs into what follows it";
}

bool writes(const ZydisDecodedOperand& operand) {
  return operand.type == ZYDIS_OPERAND_TYPE_REGISTER &&
         (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0;
}

// Pushes at the start, the same registers popped in reverse before each return with the upper
// vector state cleared, and no other use of the stack; whatever the ABI keeps for the caller is
// among them. The frame that debuggers are told of is the one that the instructions make.
void check_stack(const GeneratedCode& code, const std::vector<Instruction>& all) {
  static const std::set<ZydisRegister> callee_saved = {ZYDIS_REGISTER_RBX, ZYDIS_REGISTER_RBP,
                                                       ZYDIS_REGISTER_R12, ZYDIS_REGISTER_R13,
                                                       ZYDIS_REGISTER_R14, ZYDIS_REGISTER_R15};
  std::vector<ZydisRegister> saved;
  std::vector<std::pair<size_t, int>> frame;
  size_t next = 0;
  for (; next < all.size() && all[next].is(ZYDIS_MNEMONIC_PUSH); ++next) {
    saved.push_back(all[next].operands[0].reg.value);
    frame.emplace_back(all[next].end(), static_cast<int>(saved.size()));
  }
  size_t on_stack = saved.size();
  bool upper_cleared = false;
  int returns = 0;
  for (; next < all.size(); ++next) {
    const Instruction& i = all[next];
    if (i.is(ZYDIS_MNEMONIC_VZEROUPPER)) {
      upper_cleared = true;
    } else if (i.is(ZYDIS_MNEMONIC_POP)) {
      ASSERT_TRUE(upper_cleared && on_stack > 0) << code.name << ": pop at " << i.offset;
      ASSERT_EQ(i.operands[0].reg.value, saved[--on_stack]) << code.name << ": pop at " << i.offset;
      frame.emplace_back(i.end(), static_cast<int>(on_stack));
    } else if (i.is(ZYDIS_MNEMONIC_RET)) {
      ASSERT_TRUE(upper_cleared && on_stack == 0) << code.name << ": return at " << i.offset;
      on_stack = saved.size();
      frame.emplace_back(i.end(), static_cast<int>(on_stack));
      upper_cleared = false;
      ++returns;
    } else {
      ASSERT_FALSE(upper_cleared) << code.name << ": between vzeroupper and return, at "
                                  << i.offset;
      for (int n = 0; n < i.info.operand_count; ++n) {
        const ZydisDecodedOperand& operand = i.operands[n];
        if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY) {
          ASSERT_NE(operand.mem.base, ZYDIS_REGISTER_RSP) << code.name << ": at " << i.offset;
        }
        if (!writes(operand)) continue;
        const ZydisRegister whole =
            ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, operand.reg.value);
        ASSERT_NE(whole, ZYDIS_REGISTER_RSP) << code.name << ": at " << i.offset;
        ASSERT_TRUE(callee_saved.count(whole) == 0 ||
                    std::count(saved.begin(), saved.end(), whole) == 1)
            << code.name << ": " << ZydisRegisterGetString(whole) << " is lost at " << i.offset;
      }
    }
  }
  ASSERT_GT(returns, 0) << code.name;
  std::vector<std::pair<size_t, int>> told;
  for (const FrameChange& change : code.frame.changes) {
    told.emplace_back(change.offset, change.pushed);
  }
  ASSERT_EQ(told, frame) << code.name;
  ASSERT_EQ(code.frame.saved.size(), saved.size()) << code.name;
  for (size_t i = 0; i < saved.size(); ++i) {
    ASSERT_EQ(code.frame.saved[i], ZydisRegisterGetId(saved[i])) << code.name;
  }
}

TEST(Disassembly, EveryInstructionOfEveryKernel) {
  size_t kernels = 0, instructions = 0;
  for (const AnyKernel& kernel : every_kernel()) {
    const auto code = kernel.make();
    ASSERT_TRUE(code.ok()) << kernel.name;
    const std::vector<Instruction> all = decode(*code);
    ASSERT_NO_FATAL_FAILURE(check_instruction_sets(kernel, all));
    ASSERT_NO_FATAL_FAILURE(check_targets(*code, all));
    ASSERT_NO_FATAL_FAILURE(check_stack(*code, all));
    ++kernels;
    instructions += all.size();
  }
  EXPECT_GT(kernels, 1000u);
  RecordProperty("kernels", static_cast<int>(kernels));
  RecordProperty("instructions", static_cast<int>(instructions));
}

TEST(Disassembly, TheListOfInstructionSetsRefuses) {
  for (const char* set : {"AVX512_BF16_512", "AVX512_FP16_512", "AVX512_VBMI_512", "AMX_TILE"}) {
    EXPECT_FALSE(allowed(set, IsaLevel::kAvx512, false)) << set;
  }
  EXPECT_TRUE(allowed("AVX512_BF16_256", IsaLevel::kAvx512, true));
  EXPECT_FALSE(allowed("AVX512F_512", IsaLevel::kNone, false));
  EXPECT_TRUE(allowed("AMX_INT8", IsaLevel::kAmx, false));
}

}  // namespace
}  // namespace quern::jit

#else

TEST(Disassembly, EveryInstructionOfEveryKernel) {
  GTEST_SKIP() << "not run: built without Zydis (apt-get install libzydis-dev)";
}

#endif
