// Zydis' instructions as those of the static model.
#include <Zydis/Zydis.h>

#include <algorithm>
#include <stdexcept>

#include "bench/static_code.h"

namespace quern::bench {
namespace {

int gp_number(ZydisRegister reg) {
  const ZydisRegister whole = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);
  return ZydisRegisterGetClass(whole) == ZYDIS_REGCLASS_GPR64 ? ZydisRegisterGetId(whole) : -1;
}

/// Sets kind and number; false for registers that the model does not know (segments, flags).
bool set_register(ZydisRegister reg, CodeOperand* to) {
  switch (ZydisRegisterGetClass(reg)) {
    case ZYDIS_REGCLASS_GPR8:
    case ZYDIS_REGCLASS_GPR16:
    case ZYDIS_REGCLASS_GPR32:
    case ZYDIS_REGCLASS_GPR64:
      to->kind = CodeOperand::Kind::kGp;
      to->reg = gp_number(reg);
      return true;
    case ZYDIS_REGCLASS_XMM:
    case ZYDIS_REGCLASS_YMM:
    case ZYDIS_REGCLASS_ZMM:
      to->kind = CodeOperand::Kind::kVector;
      break;
    case ZYDIS_REGCLASS_MASK:
      to->kind = CodeOperand::Kind::kMask;
      break;
    case ZYDIS_REGCLASS_TMM:
      to->kind = CodeOperand::Kind::kTile;
      to->bytes = 0;
      break;
    default:
      return false;
  }
  to->reg = ZydisRegisterGetId(reg);
  return true;
}

bool set_operand(const ZydisDecodedOperand& from, CodeOperand* to) {
  if (from.encoding == ZYDIS_OPERAND_ENCODING_MASK) return false;  // CodeInstruction::masked
  to->read = (from.actions & ZYDIS_OPERAND_ACTION_MASK_READ) != 0;
  to->written = (from.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0;
  to->bytes = from.size / 8;
  switch (from.type) {
    case ZYDIS_OPERAND_TYPE_REGISTER:
      return set_register(from.reg.value, to);
    case ZYDIS_OPERAND_TYPE_IMMEDIATE:
      to->value = from.imm.value.s;
      return true;
    case ZYDIS_OPERAND_TYPE_MEMORY:
      to->kind = CodeOperand::Kind::kMemory;
      if (from.mem.type == ZYDIS_MEMOP_TYPE_AGEN) to->read = to->written = false;
      to->base = gp_number(from.mem.base);
      to->index = gp_number(from.mem.index);
      to->scale = from.mem.scale;
      to->value = from.mem.disp.value;
      return true;
    default:
      return false;
  }
}

bool writes_flags(const ZydisDecodedInstruction& info) {
  constexpr ZydisAccessedFlagsMask kOfConditions =
      ZYDIS_CPUFLAG_CF | ZYDIS_CPUFLAG_PF | ZYDIS_CPUFLAG_ZF | ZYDIS_CPUFLAG_SF | ZYDIS_CPUFLAG_OF;
  if (info.cpu_flags == nullptr) return false;
  const ZydisAccessedFlags& flags = *info.cpu_flags;
  return ((flags.modified | flags.set_0 | flags.set_1 | flags.undefined) & kOfConditions) != 0;
}

CodeInstruction instruction_of(const ZydisDecodedInstruction& info,
                               const ZydisDecodedOperand* operands, size_t offset) {
  CodeInstruction i;
  i.offset = offset;
  i.length = info.length;
  i.mnemonic = ZydisMnemonicGetString(info.mnemonic);
  i.masked = info.avx.mask.reg > ZYDIS_REGISTER_K0 && info.avx.mask.reg <= ZYDIS_REGISTER_K7;
  i.writes_flags = writes_flags(info);
  if (info.raw.imm[0].is_relative) {
    i.target = static_cast<int64_t>(offset + info.length) + info.raw.imm[0].value.s;
  }
  const bool fetches = i.mnemonic.rfind("prefetch", 0) == 0 || i.mnemonic == "nop";
  for (int n = 0; n < info.operand_count_visible; ++n) {
    CodeOperand operand;
    if (!set_operand(operands[n], &operand)) continue;
    if (fetches) operand.read = operand.written = false;
    i.operands.push_back(operand);
  }
  return i;
}

}  // namespace

bool can_decode() {
  return true;
}

std::vector<CodeInstruction> decode(const jit::GeneratedCode& code) {
  size_t end = code.bytes.size();
  for (const jit::CodeSection& section : code.sections) {
    if (section.name == jit::kConstantsSection) end = std::min(end, section.offset);
  }
  ZydisDecoder decoder;
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  std::vector<CodeInstruction> all;
  for (size_t at = 0; at < end; at += all.back().length) {
    ZydisDecodedInstruction info;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    if (!ZYAN_SUCCESS(
            ZydisDecoderDecodeFull(&decoder, code.bytes.data() + at, end - at, &info, operands))) {
      throw std::runtime_error(code.name + ": no instruction at offset " + std::to_string(at));
    }
    all.push_back(instruction_of(info, operands, at));
  }
  return all;
}

}  // namespace quern::bench
