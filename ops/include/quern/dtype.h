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
  /// OCP 8-bit floating point, one byte (OFP8 specification 1.0): 4 exponent and 3 mantissa bits,
  /// bias 7, no infinities, NaN is 0x7f and 0xff, largest 448
  kE4M3 = 7,
  kE5M2 = 8,  ///< as IEEE binary16 cut to its upper byte: infinities, NaNs, largest finite 57344
  /// OCP FP4 (Microscaling formats 1.0): 0 0.5 1 1.5 2 3 4 6, bit 3 the sign; of packed weights
  /// only
  kE2M1 = 9,
  kE8M0 = 10,  ///< a power of two, 2^(byte - 127); 0xff is NaN
};

/// Bytes of one element; 0 for kU4 and kE2M1, of which bits_of() knows the size.
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
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kE8M0:
      return 1;
    case DType::kU4:
    case DType::kE2M1:
      break;
  }
  return 0;
}

constexpr int bits_of(DType t) noexcept {
  return t == DType::kU4 || t == DType::kE2M1 ? 4 : static_cast<int>(size_of(t)) * 8;
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
    case DType::kE4M3:
      return "e4m3";
    case DType::kE5M2:
      return "e5m2";
    case DType::kE2M1:
      return "e2m1";
    case DType::kE8M0:
      return "e8m0";
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
