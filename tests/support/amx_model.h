#pragma once

#include <cstdint>
#include <vector>

#include "tests/support/amx_decode.h"

namespace quern::amx_emu {

/// A second opinion on execute(): the same instructions, written straight from the rules, slow, and
/// with nothing of the emulator in it but the description of an instruction. Element by element
/// everywhere, floating point in 113 bits.
class Model {
 public:
  enum class Outcome : uint8_t { kDone, kUndefined, kProtection };

  Outcome run(const Instruction& instruction);

  bool configured = false;
  int start_row = 0;
  int rows[8] = {};
  int colsb[8] = {};
  /// bytes[t][64 * row + column]
  std::vector<uint8_t> bytes[8] = {zeros(), zeros(), zeros(), zeros(),
                                   zeros(), zeros(), zeros(), zeros()};

 private:
  static std::vector<uint8_t> zeros() { return std::vector<uint8_t>(1024); }
  Outcome load_config(const uint8_t* config);
  void store_config(uint8_t* config) const;
  bool usable(int tile) const;
  bool dot_allowed(int c, int a, int b) const;
  void dot(Op op, int c, int a, int b);
  void clear();
};

}  // namespace quern::amx_emu
