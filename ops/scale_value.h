#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quern/dtype.h"

namespace quern::inline v0 {

inline float f16_to_float(uint16_t h) noexcept {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu;
  const uint32_t mantissa = h & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t bits =
      exponent == 31 ? 0x7f800000u | mantissa << 13 : (exponent + 112) << 23 | mantissa << 13;
  float f;
  const uint32_t all = sign | bits;
  std::memcpy(&f, &all, sizeof f);
  return f;
}

/// Element i of unaligned scales of kF32, kBF16 or kF16.
inline float scale_value(const void* data, DType type, int64_t i) noexcept {
  switch (type) {
    case DType::kBF16: {
      bfloat16 b;
      std::memcpy(&b, static_cast<const std::byte*>(data) + 2 * i, sizeof b);
      return b.to_float();
    }
    case DType::kF16: {
      uint16_t h;
      std::memcpy(&h, static_cast<const std::byte*>(data) + 2 * i, sizeof h);
      return f16_to_float(h);
    }
    default: {
      float f;
      std::memcpy(&f, static_cast<const std::byte*>(data) + 4 * i, sizeof f);
      return f;
    }
  }
}

}  // namespace quern::inline v0
