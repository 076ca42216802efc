#include "jit/float_codes.h"

#include <cmath>

namespace quern::jit {
namespace {

struct Format {
  int exponent_bits, mantissa_bits, bias;
};

Format format_of(DType type) {
  switch (type) {
    case DType::kE5M2:
      return {5, 2, 15};
    case DType::kE2M1:
      return {2, 1, 1};
    default:
      return {4, 3, 7};
  }
}

constexpr uint16_t kInfinity = 0x7f80, kNan = 0x7fc0;

}  // namespace

uint16_t bf16_of_code(DType type, int code) {
  const Format f = format_of(type);
  const int magnitude_bits = f.exponent_bits + f.mantissa_bits;
  const int magnitude = code & ((1 << magnitude_bits) - 1);
  const int exponent = magnitude >> f.mantissa_bits;
  const int mantissa = magnitude & ((1 << f.mantissa_bits) - 1);
  uint16_t bits;
  if (type == DType::kE5M2 && exponent == 31) {
    bits = mantissa == 0 ? kInfinity : kNan;
  } else if (type == DType::kE4M3 && magnitude == 0x7f) {
    bits = kNan;
  } else {
    const int digits = exponent == 0 ? mantissa : mantissa | 1 << f.mantissa_bits;
    const int power = (exponent == 0 ? 1 : exponent) - f.bias - f.mantissa_bits;
    bits = bfloat16::from_float(std::ldexp(static_cast<float>(digits), power)).bits;
  }
  const bool negative = (code >> magnitude_bits & 1) != 0;
  return static_cast<uint16_t>(bits | (negative ? 0x8000 : 0));
}

}  // namespace quern::jit
