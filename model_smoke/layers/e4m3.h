#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace quern::smoke {

/// Storage of an OFP8 e4m3 number: 1 sign, 4 exponent (bias 7) and 3 mantissa bits, no infinities,
/// NaN is 0x7f and 0xff, largest 448.
struct e4m3 {
  uint8_t bits = 0;

  /// Rounds to nearest even and saturates: 448 is the largest result, of infinity too. NaN stays.
  static e4m3 from_float(float x) noexcept {
    const auto sign = static_cast<uint8_t>(std::signbit(x) ? 0x80 : 0);
    if (std::isnan(x)) return {static_cast<uint8_t>(sign | 0x7f)};
    const float a = std::fmin(std::fabs(x), 448.0f);
    uint32_t code;
    if (a < 0x1p-6f) {
      // Subnormals are multiples of 2^-9, the unit in the last place of floats from 2^14 on.
      code = std::bit_cast<uint32_t>(a + 0x1p14f) - std::bit_cast<uint32_t>(0x1p14f);
    } else {
      constexpr uint32_t kRebias = (127 - 7) << 3;
      const uint32_t u = std::bit_cast<uint32_t>(a);
      code = ((u + 0x7ffffu + ((u >> 20) & 1u)) >> 20) - kRebias;
    }
    return {static_cast<uint8_t>(sign | code)};
  }
};

namespace detail {

inline const std::array<float, 256> kE4M3Values = [] {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code >> 3) & 15, mantissa = code & 7;
    float x = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                            : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    if ((code & 0x7f) == 0x7f) x = std::numeric_limits<float>::quiet_NaN();
    values[static_cast<size_t>(code)] = code & 0x80 ? -x : x;
  }
  return values;
}();

}  // namespace detail

inline float to_float(e4m3 x) noexcept {
  return detail::kE4M3Values[x.bits];
}

}  // namespace quern::smoke
