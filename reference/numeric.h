#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "quern/dtype.h"
#include "quern/tensor_view.h"

/// Number formats, spelled out arithmetically. Nothing here is shared with ops/ or jit/: a wrong
/// bit trick there cannot be wrong here in the same way. Rounding relies on the default rounding
/// mode.
namespace quern::reference {

/// A binary format: `precision` significand bits (the hidden one included), exponents
/// [min_exponent, max_exponent] of normal numbers, subnormals below.
struct BinaryFormat {
  int precision;
  int min_exponent;
  int max_exponent;
};
inline constexpr BinaryFormat kFormatBF16{8, -126, 127};
inline constexpr BinaryFormat kFormatF16{11, -14, 15};
inline constexpr BinaryFormat kFormatE5M2{3, -14, 15};

/// OFP8 e4m3: as the formats above, but the largest exponent field holds numbers too, all but the
/// two NaNs.
inline double e4m3_to_double(uint8_t code) {
  if ((code & 0x7f) == 0x7f) return std::numeric_limits<double>::quiet_NaN();
  const int field = (code >> 3) & 15, fraction = code & 7;
  const double magnitude =
      field == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, field - 10);
  return code & 0x80 ? -magnitude : magnitude;
}
inline double e2m1_to_double(uint8_t code) {
  const int field = (code >> 1) & 3, fraction = code & 1;
  const double magnitude =
      field == 0 ? std::ldexp(fraction, -1) : std::ldexp(2 + fraction, field - 2);
  return code & 8 ? -magnitude : magnitude;
}
inline double e8m0_to_double(uint8_t code) {
  return code == 255 ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, code - 127);
}

/// Value of the code (sign, exponent field, fraction field) of `f`, held in `bits`.
inline double decode(const BinaryFormat& f, uint32_t bits) {
  const int fraction_bits = f.precision - 1;
  const int exponent_field_max = f.max_exponent - f.min_exponent + 2;
  const uint32_t fraction = bits & ((1u << fraction_bits) - 1u);
  const int field = static_cast<int>(bits >> fraction_bits) & exponent_field_max;
  const bool negative =
      ((bits >> fraction_bits) / static_cast<uint32_t>(exponent_field_max + 1)) != 0;
  double magnitude;
  if (field == exponent_field_max) {
    magnitude = fraction ? std::numeric_limits<double>::quiet_NaN()
                         : std::numeric_limits<double>::infinity();
  } else if (field == 0) {
    magnitude = std::ldexp(fraction, f.min_exponent - fraction_bits);
  } else {
    magnitude =
        std::ldexp(fraction + (1u << fraction_bits), field - 1 + f.min_exponent - fraction_bits);
  }
  return negative ? -magnitude : magnitude;
}

/// x rounded to the nearest value of `f`, ties to even; overflow gives infinity, subnormals are
/// kept. One rounding, whatever the format: x is a double all along.
inline double round_to(const BinaryFormat& f, double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent;
  std::frexp(x, &exponent);  // |x| in [2^(exponent-1), 2^exponent)
  const int quantum = std::max(exponent - 1, f.min_exponent) - (f.precision - 1);
  const double r = std::ldexp(std::nearbyint(std::ldexp(x, -quantum)), quantum);
  const double largest = std::ldexp(2.0 - std::ldexp(1.0, 1 - f.precision), f.max_exponent);
  if (std::fabs(r) > largest) return std::copysign(std::numeric_limits<double>::infinity(), x);
  return r;
}

inline double bf16_to_double(uint16_t bits) {
  return decode(kFormatBF16, bits);
}
inline double f16_to_double(uint16_t bits) {
  return decode(kFormatF16, bits);
}

/// A bf16 operand of a bf16 dot product: subnormals count as zero, as the instruction has it.
inline double bf16_operand(uint16_t bits) {
  const double x = bf16_to_double(bits);
  return std::fabs(x) < 0x1p-126 ? std::copysign(0.0, x) : x;
}

/// The code of a value that `f` holds exactly (a result of round_to), NaN as the quiet NaN.
inline uint16_t encode(const BinaryFormat& f, double x) {
  const int fraction_bits = f.precision - 1;
  const uint32_t exponent_field_max = static_cast<uint32_t>(f.max_exponent - f.min_exponent + 2);
  const uint32_t sign = std::signbit(x) ? (exponent_field_max + 1) << fraction_bits : 0u;
  uint32_t code;
  if (std::isnan(x)) {
    code = (exponent_field_max << fraction_bits) + (1u << (fraction_bits - 1));
  } else if (std::isinf(x)) {
    code = exponent_field_max << fraction_bits;
  } else if (std::fabs(x) < std::ldexp(1.0, f.min_exponent)) {
    code = static_cast<uint32_t>(std::ldexp(std::fabs(x), fraction_bits - f.min_exponent));
  } else {
    int exponent;
    const double significand = std::frexp(std::fabs(x), &exponent);  // in [0.5, 1)
    const uint32_t field = static_cast<uint32_t>(exponent - 1 - f.min_exponent + 1);
    code = (field << fraction_bits) +
           (static_cast<uint32_t>(std::ldexp(significand, f.precision)) - (1u << fraction_bits));
  }
  return static_cast<uint16_t>(sign | code);
}

inline uint16_t bf16_from_double(double x) {
  return encode(kFormatBF16, round_to(kFormatBF16, x));
}
inline uint16_t f16_from_double(double x) {
  return encode(kFormatF16, round_to(kFormatF16, x));
}

/// Element i of typed memory, as a double (exact for every type). Memory need not be aligned.
inline double load(const void* data, DType t, int64_t i) {
  const char* p = static_cast<const char*>(data) + i * static_cast<int64_t>(size_of(t));
  const auto read = [p](auto value) {
    std::memcpy(&value, p, sizeof(value));
    return value;
  };
  switch (t) {
    case DType::kF32:
      return read(float{});
    case DType::kBF16:
      return bf16_to_double(read(uint16_t{}));
    case DType::kF16:
      return f16_to_double(read(uint16_t{}));
    case DType::kS8:
      return read(int8_t{});
    case DType::kU8:
      return read(uint8_t{});
    case DType::kS32:
      return read(int32_t{});
    case DType::kE4M3:
      return e4m3_to_double(read(uint8_t{}));
    case DType::kE5M2:
      return decode(kFormatE5M2, read(uint8_t{}));
    case DType::kE8M0:
      return e8m0_to_double(read(uint8_t{}));
    case DType::kU4:  // no view has them
    case DType::kE2M1:
      break;
  }
  return 0;
}
inline double load(const MatrixView& m, int64_t row, int64_t col) {
  return load(m.data, m.dtype, row * m.row_stride + col);
}
inline double load(const VectorView& v, int64_t i) {
  return load(v.data, v.dtype, i);
}

/// Rounds x to the element type (kF32, kBF16) or stores the integer it is (kS8, kS32).
inline void store(void* data, DType t, int64_t i, double x) {
  char* p = static_cast<char*>(data) + i * static_cast<int64_t>(size_of(t));
  const auto write = [p](auto value) { std::memcpy(p, &value, sizeof(value)); };
  switch (t) {
    case DType::kF32:
      return write(static_cast<float>(x));
    case DType::kBF16:
      return write(bf16_from_double(x));
    case DType::kF16:
      return write(f16_from_double(x));
    case DType::kS8:
      return write(static_cast<int8_t>(x));
    case DType::kU8:
      return write(static_cast<uint8_t>(x));
    case DType::kS32:
      return write(static_cast<int32_t>(x));
    case DType::kU4:  // no view has it, or nothing stores it
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kE2M1:
    case DType::kE8M0:
      break;
  }
}
inline void store(const MutableMatrixView& m, int64_t row, int64_t col, double x) {
  store(m.data, m.dtype, row * m.row_stride + col, x);
}
inline void store(const MutableVectorView& v, int64_t i, double x) {
  store(v.data, v.dtype, i, x);
}

/// x / (1 + e^-x); its limits at the infinities are +inf and -0.
inline double silu(double x) {
  if (std::isinf(x)) return x > 0 ? x : -0.0;
  return x / (1.0 + std::exp(-x));
}

}  // namespace quern::reference
