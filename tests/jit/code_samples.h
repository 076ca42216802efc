#pragma once

#include <cstdint>
#include <vector>

#include "jit/code_memory.h"

namespace quern::jit {

/// mov eax, value; ret
inline std::vector<uint8_t> return_constant(uint32_t value) {
  const auto byte = [value](int i) { return static_cast<uint8_t>(value >> (8 * i)); };
  return {0xb8, byte(0), byte(1), byte(2), byte(3), 0xc3};
}

inline uint32_t call_code(const void* entry) {
  return reinterpret_cast<uint32_t (*)()>(reinterpret_cast<uintptr_t>(entry))();
}

inline uint32_t call(const CodeBlock& block) {
  return call_code(block.entry());
}

}  // namespace quern::jit
