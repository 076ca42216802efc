#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "jit/kernel.h"

namespace quern::bench {

/// What the static model needs to know of an operand.
struct CodeOperand {
  enum class Kind { kGp, kVector, kMask, kTile, kMemory, kImmediate };

  Kind kind = Kind::kImmediate;
  bool read = false;  ///< of memory: never of an address that is only computed or fetched
  bool written = false;
  int bytes = 0;      ///< width of the register or of the access; 0 for tiles
  int reg = -1;       ///< number, as in machine code
  int64_t value = 0;  ///< the immediate, or the displacement of an address
  int base = -1;      ///< gp registers of an address, -1: none (or rip)
  int index = -1;
  int scale = 0;
};

/// One instruction. Operands that the text of an instruction does not show are left out.
struct CodeInstruction {
  size_t offset = 0;
  size_t length = 0;
  std::string mnemonic;  ///< as Zydis writes it: "vpaddd", "jnz"
  std::vector<CodeOperand> operands;
  bool masked = false;        ///< by k1..k7
  bool writes_flags = false;  ///< any of those that conditions ask for
  int64_t target = -1;        ///< offset where a branch goes; -1: no branch, or not a relative one

  bool is(std::string_view name) const { return mnemonic == name; }
};

/// Whether this build can read code: with Zydis 4.
bool can_decode();

/// The instructions of `code` in the order of their offsets, without its constants. Throws
/// std::runtime_error where bytes are no instruction, or nothing can be decoded.
std::vector<CodeInstruction> decode(const jit::GeneratedCode& code);

}  // namespace quern::bench
