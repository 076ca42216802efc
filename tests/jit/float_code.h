#pragma once

#include <cmath>

#include "quern/dtype.h"

namespace quern::jit {

/// What a code of kE4M3, kE5M2 or kE2M1 says by the definition of its format: NaNs, infinities and
/// subnormals too.
inline double float_code(DType type, int code) {
  const int exponent_bits = type == DType::kE5M2 ? 5 : type == DType::kE4M3 ? 4 : 2;
  const int fraction_bits = type == DType::kE5M2 ? 2 : type == DType::kE4M3 ? 3 : 1;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = code >> fraction_bits & ((1 << exponent_bits) - 1);
  const int fraction = code & ((1 << fraction_bits) - 1);
  const double sign = (code >> (exponent_bits + fraction_bits) & 1) != 0 ? -1.0 : 1.0;
  if (type == DType::kE4M3 && (code & 0x7f) == 0x7f) return std::copysign(NAN, sign);
  if (type == DType::kE5M2 && exponent == 31) {
    return fraction != 0 ? std::copysign(NAN, sign) : sign * INFINITY;
  }
  const double part = static_cast<double>(fraction) / (1 << fraction_bits);
  return sign *
         (exponent == 0 ? std::ldexp(part, 1 - bias) : std::ldexp(1 + part, exponent - bias));
}

}  // namespace quern::jit
