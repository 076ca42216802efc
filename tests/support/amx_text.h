#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/support/amx_decode.h"

namespace quern::amx_emu {

/// Text put together without allocation, so that a signal handler can; what does not fit is cut.
class Text {
 public:
  Text& add(const char* text);
  Text& add_hex(uint64_t value);  ///< 0x1f
  Text& add_decimal(uint64_t value);
  /// The instruction in objdump's Intel syntax: "tileloadd tmm1,[rax+rcx*4+0x10]".
  Text& add(const Instruction& instruction);

  const char* c_str() const { return text_; }
  size_t size() const { return size_; }
  /// To standard error, by write(2).
  void print() const;

 private:
  Text& add_memory(const Instruction& instruction);

  char text_[512] = {};
  size_t size_ = 0;
};

}  // namespace quern::amx_emu
