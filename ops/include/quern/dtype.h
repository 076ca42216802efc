#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace quern {
inline namespace v0 {

/// Element types of the operands. The values are part of the ABI.
enum class DType : uint8_t {
  kF32 = 0,
  kBF16 = 1,  ///< upper half of an IEEE binary32
  kF16 = 2,   ///< IEEE binary16
  kS8 = 3,
  kU8 = 4,
  kS32 = 5,
  kU4 = 6,  ///< two codes a byte; of packed weights only, no view has it
};

/// Bytes of one element; 0 for kU4, of which bits_of() knows the size.
constexpr size_t size_of(DType t) noexcept {
  switch (t) {
    case DType::kF32:
    case DType::kS32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kS8:
    case DType::kU8:
      return 1;
    case DType::kU4:
      break;
  }
  return 0;
}

constexpr int bits_of(DType t) noexcept {
  return t == DType::kU4 ? 4 : static_cast<int>(size_of(t)) * 8;
}

/// The name used in problem strings, kernel names and messages.
constexpr const char* to_string(DType t) noexcept {
  switch (t) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kS8:
      return "s8";
    case DType::kU8:
      return "u8";
    case DType::kS32:
      return "s32";
    case DType::kU4:
      return "u4";
  }
  return "?";
}

/// Storage of a bf16 number. Arithmetic happens in f32; the conversions are exact in one direction
/// and round to nearest even in the other.
struct bfloat16 {
  uint16_t bits = 0;

  /// Rounds to nearest even. NaN stays NaN (quiet), overflow gives infinity. Subnormals are kept.
  static bfloat16 from_float(float f) noexcept {
    uint32_t u;
    std::memcpy(&u, &f, 4);
    bfloat16 r;
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      r.bits = static_cast<uint16_t>((u >> 16) | 0x40u);
    } else {
      r.bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
    return r;
  }

  float to_float() const noexcept {
    const uint32_t u = static_cast<uint32_t>(bits) << 16;
    float f;
    std::memcpy(&f, &u, 4);
    return f;
  }
};
static_assert(sizeof(bfloat16) == 2, "bfloat16 is two bytes of storage");

}  // namespace v0
}  // namespace quern
