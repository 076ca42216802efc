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
bool allowed(std::string_view set, const AnyKernel& kernel) {
  static const std::set<std::string_view> baseline = {
      "I86",          "I186", "I286REAL",     "I386",    "I486REAL",
      "PENTIUMREAL",  "PPRO", "CMOV",         "FAT_NOP", "LONGMODE",
      "PREFETCH_NOP", "SSE",  "SSE_PREFETCH", "SSE2",    "SSEMXCSR"};
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
  if (avx512.count(set) != 0 || (kernel.bf16 && set == "AVX512_BF16") ||
      (kernel.vbmi && set == "AVX512_VBMI")) {
    return kernel.level >= IsaLevel::kAvx512;
  }
  return kernel.level >= IsaLevel::kAmx && amx.count(set) != 0;
}

// Each check returns the first thing that is wrong, or nothing.

std::string at(const Instruction& i, const std::string& what) {
  return what + " (" + ZydisMnemonicGetString(i.info.mnemonic) + " at offset " +
         std::to_string(i.offset) + ")";
}

std::string check_instruction_sets(const std::vector<Instruction>& all, const AnyKernel& kernel) {
  for (const Instruction& i : all) {
    const char* set = ZydisISASetGetString(i.info.meta.isa_set);
    if (!allowed(set, kernel)) return at(i, std::string("needs ") + set);
  }
  return "";
}

// Branches go to instructions of the kernel, rip-relative operands to its constants, and nothing
// runs off the end of the code.
std::string check_targets(const GeneratedCode& code, const std::vector<Instruction>& all) {
  std::set<uint64_t> starts;
  for (const Instruction& i : all) starts.insert(i.offset);
  for (const Instruction& i : all) {
    for (int n = 0; n < i.info.operand_count_visible; ++n) {
      const ZydisDecodedOperand& operand = i.operands[n];
      const bool relative = operand.type == ZYDIS_OPERAND_TYPE_IMMEDIATE && operand.imm.is_relative;
      const bool constant =
          operand.type == ZYDIS_OPERAND_TYPE_MEMORY && operand.mem.base == ZYDIS_REGISTER_RIP;
      if (!relative && !constant) continue;
      ZyanU64 to = 0;
      if (!ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(&i.info, &operand, i.offset, &to))) {
        return at(i, "no address");
      }
      if (relative && starts.count(to) == 0) return at(i, "branch into nowhere");
      const bool data = to >= code_bytes(code) && to + 4 <= code.bytes.size() && to % 4 == 0;
      if (constant && !data) return at(i, "operand outside the constants");
    }
  }
  if (all.empty()) return "no code";
  const Instruction& last = all.back();
  const bool leaves = last.is(ZYDIS_MNEMONIC_RET) || last.is(ZYDIS_MNEMONIC_JMP);
  return leaves ? "" : at(last, "runs into what follows the code");
}

/// The largest register that an operand writes to, or none.
ZydisRegister written(const ZydisDecodedOperand& operand) {
  if (operand.type != ZYDIS_OPERAND_TYPE_REGISTER ||
      (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) == 0) {
    return ZYDIS_REGISTER_NONE;
  }
  return ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, operand.reg.value);
}

/// What the instructions do to the stack, followed from the first to the last.
struct Stack {
  std::vector<ZydisRegister> saved;
  std::vector<std::pair<size_t, int>> frame;  // as CodeFrame::changes
  size_t pushed = 0;
  bool upper_cleared = false;
  int returns = 0;

  void note(const Instruction& i) { frame.emplace_back(i.end(), static_cast<int>(pushed)); }
  std::string pop(const Instruction& i);
  std::string leave(const Instruction& i);
  std::string body(const Instruction& i) const;
};

std::string Stack::pop(const Instruction& i) {
  if (!upper_cleared) return at(i, "pop before vzeroupper");
  if (pushed == 0 || i.operands[0].reg.value != saved[pushed - 1]) return at(i, "unmatched pop");
  --pushed;
  note(i);
  return "";
}

std::string Stack::leave(const Instruction& i) {
  if (!upper_cleared) return at(i, "return without vzeroupper");
  if (pushed != 0) return at(i, "return with registers on the stack");
  pushed = saved.size();  // code behind a return belongs to the body
  note(i);
  upper_cleared = false;
  ++returns;
  return "";
}

std::string Stack::body(const Instruction& i) const {
  static const std::set<ZydisRegister> callee_saved = {ZYDIS_REGISTER_RBX, ZYDIS_REGISTER_RBP,
                                                       ZYDIS_REGISTER_R12, ZYDIS_REGISTER_R13,
                                                       ZYDIS_REGISTER_R14, ZYDIS_REGISTER_R15};
  if (upper_cleared) return at(i, "between vzeroupper and return");
  for (int n = 0; n < i.info.operand_count; ++n) {
    const ZydisDecodedOperand& operand = i.operands[n];
    if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY && operand.mem.base == ZYDIS_REGISTER_RSP) {
      return at(i, "uses the stack");
    }
    const ZydisRegister whole = written(operand);
    if (whole == ZYDIS_REGISTER_RSP) return at(i, "moves the stack");
    if (callee_saved.count(whole) != 0 && std::count(saved.begin(), saved.end(), whole) == 0) {
      return at(i, "loses a register of its caller");
    }
  }
  return "";
}

// Pushes at the start, the same registers popped in reverse before each return with the upper
// vector state cleared, and no other use of the stack; whatever the ABI keeps for the caller is
// among them. The frame that debuggers are told of is the one that the instructions make.
std::string check_stack(const GeneratedCode& code, const std::vector<Instruction>& all) {
  Stack stack;
  std::string wrong;
  bool prologue = true;
  for (const Instruction& i : all) {
    prologue = prologue && i.is(ZYDIS_MNEMONIC_PUSH);
    if (prologue) {
      stack.saved.push_back(i.operands[0].reg.value);
      ++stack.pushed;
      stack.note(i);
    } else if (i.is(ZYDIS_MNEMONIC_VZEROUPPER)) {
      stack.upper_cleared = true;
    } else if (i.is(ZYDIS_MNEMONIC_POP)) {
      wrong = stack.pop(i);
    } else if (i.is(ZYDIS_MNEMONIC_RET)) {
      wrong = stack.leave(i);
    } else {
      wrong = stack.body(i);
    }
    if (!wrong.empty()) return wrong;
  }
  if (stack.returns == 0) return "no return";
  std::vector<std::pair<size_t, int>> told;
  for (const FrameChange& change : code.frame.changes) {
    told.emplace_back(change.offset, change.pushed);
  }
  if (told != stack.frame) return "debuggers are told of another frame";
  std::vector<int> numbers;
  for (const ZydisRegister reg : stack.saved) numbers.push_back(ZydisRegisterGetId(reg));
  return numbers == code.frame.saved ? "" : "debuggers are told of other registers";
}

TEST(Disassembly, EveryInstructionOfEveryKernel) {
  int kernels = 0, instructions = 0;
  for (const AnyKernel& kernel : every_kernel()) {
    const auto code = kernel.make();
    ASSERT_TRUE(code.ok()) << kernel.name;
    const std::vector<Instruction> all = decode(*code);
    ASSERT_FALSE(HasFailure()) << kernel.name;
    ASSERT_EQ(check_instruction_sets(all, kernel), "") << kernel.name;
    ASSERT_EQ(check_targets(*code, all), "") << kernel.name;
    ASSERT_EQ(check_stack(*code, all), "") << kernel.name;
    ++kernels;
    instructions += static_cast<int>(all.size());
  }
  EXPECT_GT(kernels, 1000);
  RecordProperty("kernels", kernels);
  RecordProperty("instructions", instructions);
}

/// Code by hand, with the frame that a generator would have noted for one push of rbx at the start.
GeneratedCode sample(const std::vector<uint8_t>& bytes, std::vector<FrameChange> changes) {
  GeneratedCode code;
  code.name = "sample";
  code.bytes = bytes;
  code.frame.saved = {3};
  code.frame.changes = std::move(changes);
  return code;
}

AnyKernel kernel_with(IsaLevel level, bool bf16 = false) {
  AnyKernel kernel;
  kernel.level = level;
  kernel.bf16 = bf16;
  return kernel;
}

// Each check finds the fault it is there for. Bytes: 53 push rbx, 5b pop rbx, 5d pop rbp, c3 ret,
// c5 f8 77 vzeroupper, 48 ff c3 inc rbx, 48 ff c5 inc rbp, eb jmp.
TEST(Disassembly, TheChecksFindFaults) {
  const std::vector<FrameChange> frame = {{1, 1}, {8, 0}, {9, 1}};
  const GeneratedCode good = sample({0x53, 0x48, 0xff, 0xc3, 0xc5, 0xf8, 0x77, 0x5b, 0xc3}, frame);
  EXPECT_EQ(check_stack(good, decode(good)), "");
  EXPECT_EQ(check_targets(good, decode(good)), "");
  const struct {
    std::vector<uint8_t> bytes;
    const char* wrong;
  } stacks[] = {
      {{0x53, 0x48, 0xff, 0xc5, 0xc5, 0xf8, 0x77, 0x5b, 0xc3}, "loses a register"},
      {{0x53, 0x48, 0xff, 0xc3, 0xc5, 0xf8, 0x77, 0x5d, 0xc3}, "unmatched pop"},
      {{0x53, 0x48, 0xff, 0xc3, 0x90, 0x90, 0x90, 0x5b, 0xc3}, "pop before vzeroupper"},
      {{0x53, 0x48, 0xff, 0xc3, 0xc5, 0xf8, 0x77, 0xc3}, "return with registers"},
      {{0x53, 0x48, 0xff, 0xc4, 0xc5, 0xf8, 0x77, 0x5b, 0xc3}, "moves the stack"},
      {{0x53, 0x48, 0x8b, 0x1c, 0x24, 0xc5, 0xf8, 0x77, 0x5b, 0xc3}, "uses the stack"},
      {{0x53, 0xc5, 0xf8, 0x77, 0x5b, 0xc3}, "another frame"},
      {{0x53, 0x48, 0xff, 0xc3, 0xeb, 0xfa}, "no return"},
  };
  for (const auto& c : stacks) {
    const GeneratedCode code = sample(c.bytes, frame);
    EXPECT_NE(check_stack(code, decode(code)).find(c.wrong), std::string::npos)
        << c.wrong << ": " << check_stack(code, decode(code));
  }
  const struct {
    std::vector<uint8_t> bytes;
    const char* wrong;
  } targets[] = {
      {{0x48, 0xff, 0xc3, 0xeb, 0xfc}, "branch into nowhere"},  // the middle of inc
      {{0xeb, 0x00}, "branch into nowhere"},                    // the end
      {{0x8b, 0x05, 0, 0, 0, 0, 0xc3}, "outside the constants"},
      {{0x48, 0xff, 0xc3}, "runs into"},
  };
  for (const auto& c : targets) {
    const GeneratedCode code = sample(c.bytes, {});
    EXPECT_NE(check_targets(code, decode(code)).find(c.wrong), std::string::npos) << c.wrong;
  }
  // vdpbf16ps zmm0, zmm0, zmm0
  const std::vector<Instruction> bf16 = decode(sample({0x62, 0xf2, 0x7e, 0x48, 0x52, 0xc0}, {}));
  EXPECT_EQ(check_instruction_sets(bf16, kernel_with(IsaLevel::kAvx512, true)), "");
  EXPECT_NE(check_instruction_sets(bf16, kernel_with(IsaLevel::kAvx512)).find("AVX512_BF16"),
            std::string::npos);
}

TEST(Disassembly, TheListOfInstructionSetsRefuses) {
  for (const char* set : {"AVX512_BF16_512", "AVX512_FP16_512", "AVX512_VBMI_512", "AMX_TILE"}) {
    EXPECT_FALSE(allowed(set, kernel_with(IsaLevel::kAvx512))) << set;
  }
  EXPECT_TRUE(allowed("AVX512_BF16_256", kernel_with(IsaLevel::kAvx512, true)));
  EXPECT_FALSE(allowed("AVX512F_512", kernel_with(IsaLevel::kNone)));
  EXPECT_TRUE(allowed("AMX_INT8", kernel_with(IsaLevel::kAmx)));
}

}  // namespace
}  // namespace quern::jit

#else

TEST(Disassembly, EveryInstructionOfEveryKernel) {
  GTEST_SKIP() << "not run: built without Zydis (apt-get install libzydis-dev)";
}

#endif
