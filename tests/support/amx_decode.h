#pragma once

#include <cstddef>
#include <cstdint>

namespace quern::amx_emu {

enum class Op : uint8_t {
  kLdtilecfg,
  kSttilecfg,
  kTilerelease,
  kTilezero,
  kTileloadd,
  kTileloaddt1,
  kTilestored,
  kTdpbssd,
  kTdpbsud,
  kTdpbusd,
  kTdpbuud,
  kTdpbf16ps,
  kTdpfp16ps,
};
inline constexpr int kOps = 13;

/// As objdump spells it.
const char* to_string(Op op);

constexpr bool is_load(Op op) {
  return op == Op::kTileloadd || op == Op::kTileloaddt1;
}
constexpr bool is_dot(Op op) {
  return op >= Op::kTdpbssd;
}
constexpr bool has_memory(Op op) {
  return op == Op::kLdtilecfg || op == Op::kSttilecfg || is_load(op) || op == Op::kTilestored;
}
/// Touches tile data, for which the kernel's permission is needed; the other three do not.
constexpr bool uses_tile_data(Op op) {
  return op != Op::kLdtilecfg && op != Op::kSttilecfg && op != Op::kTilerelease;
}

/// Register numbers as in ModRM: 0 rax, 1 rcx, 2 rdx, 3 rbx, 4 rsp, 5 rbp, 6 rsi, 7 rdi, 8..15.
inline constexpr int8_t kNoRegister = -1;
inline constexpr int8_t kRip = 16;

struct MemoryOperand {
  int8_t base = kNoRegister;  ///< or kRip
  int8_t index = kNoRegister;
  uint8_t scale = 1;  ///< 1, 2, 4, 8
  int32_t disp = 0;
};

struct Instruction {
  Op op = Op::kTilerelease;
  uint8_t length = 0;
  /// Tile registers: dst of zero and loads, src1 of a store, all three of a dot product.
  uint8_t dst = 0, src1 = 0, src2 = 0;
  MemoryOperand memory;  ///< where has_memory(op)
  /// Loads and stores: address of row 0 and distance of rows. Configuration: address of its bytes.
  uint64_t address = 0;
  uint64_t stride = 0;
};

struct Gprs {
  uint64_t r[16] = {};  ///< in the order of ModRM
  uint64_t rip = 0;     ///< of the instruction
};

enum class DecodeKind : uint8_t {
  kInstruction,
  kFault,   ///< an AMX opcode that no processor takes, or that is not emulated: `rule` says why
  kNotAmx,  ///< something else
};

struct Decoded {
  DecodeKind kind = DecodeKind::kNotAmx;
  Instruction instruction;
  const char* rule = nullptr;  ///< static text
};

/// Reads one instruction from `code` and its operands' addresses from `gprs`. Reads byte by byte
/// and never one that the instruction does not have, so that `size` may be 15 (the longest there
/// is) also where the page ends right behind the instruction; a shorter `size` cuts code off, and
/// what is cut off is not AMX. Pure, thread-safe, safe in signal handlers.
///
/// Knows every form of VEX that the architecture defines for these instructions. Refused by name:
/// the AMX instructions of later extensions (complex, TF32, MOVRS), segment and address-size
/// prefixes (generators compute 64-bit addresses), VEX.R and VEX.B where they extend no register.
Decoded decode(const uint8_t* code, size_t size, const Gprs& gprs);

}  // namespace quern::amx_emu
