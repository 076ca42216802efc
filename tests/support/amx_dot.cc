#include "tests/support/amx_dot.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace quern::amx_emu {
namespace {

constexpr double kMinNormal = 0x1p-126;
/// Half way between 2^-126 and the largest number of 24 bits below it. Tininess is judged after
/// rounding as if the exponent had no bound, so from here on (to even: the half way point too) a
/// sum is the smallest normal, and below it zero.
constexpr double kTinyBelow = kMinNormal - 0x1p-151;

uint32_t dword(const Tile& t, int row, int column) {
  uint32_t value;
  std::memcpy(&value, &t.row[row][4 * column], 4);
  return value;
}
void set_dword(Tile& t, int row, int column, uint32_t value) {
  std::memcpy(&t.row[row][4 * column], &value, 4);
}

int32_t byte_of(uint32_t word, int i, bool is_signed) {
  const auto byte = static_cast<uint8_t>(word >> (8 * i));
  return is_signed ? static_cast<int8_t>(byte) : byte;
}

void int8_dot(Op op, const DotOperands& o) {
  const bool sa = signed_a(op);
  const bool sb = signed_b(op);
  for (int m = 0; m < o.m; ++m) {
    for (int n = 0; n < o.n; ++n) {
      uint32_t sum = dword(*o.c, m, n);  // unsigned, because it wraps
      for (int k = 0; k < o.k; ++k) {
        const uint32_t a = dword(*o.a, m, k);
        const uint32_t b = dword(*o.b, k, n);
        for (int i = 0; i < 4; ++i) {
          sum += static_cast<uint32_t>(byte_of(a, i, sa) * byte_of(b, i, sb));
        }
      }
      set_dword(*o.c, m, n, sum);
    }
  }
}

/// fp32 bits as a double, denormals as zero of the same sign.
double from_fp32(uint32_t bits) {
  if ((bits & 0x7f800000u) == 0) bits &= 0x80000000u;
  return std::bit_cast<float>(bits);
}

double from_bf16(uint16_t bits) {
  return from_fp32(uint32_t{bits} << 16);
}

/// Denormals as they are.
double from_fp16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 0x3ff;
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == 0) return sign * (mantissa * 0x1p-24);
  if (exponent == 31) {  // a signalling NaN becomes a quiet one
    if (mantissa == 0) return sign * HUGE_VAL;
    return std::bit_cast<float>((uint32_t{bits & 0x8000u} << 16) | 0x7fc00000u |
                                (static_cast<uint32_t>(mantissa) << 13));
  }
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

/// x + y rounded once to fp32, with FTZ. Both have at most 24 significant bits (fp32 itself,
/// products of two bf16 or fp16: 16 and 22) and exponents far inside double's range, so that
/// rounding the sum to the 53 bits of double first changes nothing: 53 >= 2 * 24 + 2 (Figueroa,
/// "When is double rounding innocuous?", 1995).
double add_to_fp32(double x, double y) {
  const double sum = x + y;
  if (std::fabs(sum) < kTinyBelow) return std::copysign(0.0, sum);
  if (std::fabs(sum) < kMinNormal) return std::copysign(kMinNormal, sum);
  return static_cast<float>(sum);  // infinities and NaNs as well
}

/// One element of C: halves of a dword are even (low) and odd (high) elements.
template <double (*From)(uint16_t)>
uint32_t float_element(const DotOperands& o, int m, int n) {
  double even = 0.0;
  double odd = 0.0;
  for (int k = 0; k < o.k; ++k) {
    const uint32_t a = dword(*o.a, m, k);
    const uint32_t b = dword(*o.b, k, n);
    // Products of 8 or 11 bit numbers are exact in double, and so is their exponent.
    even = add_to_fp32(even, From(static_cast<uint16_t>(a)) * From(static_cast<uint16_t>(b)));
    odd = add_to_fp32(odd,
                      From(static_cast<uint16_t>(a >> 16)) * From(static_cast<uint16_t>(b >> 16)));
  }
  const double sum = add_to_fp32(from_fp32(dword(*o.c, m, n)), add_to_fp32(even, odd));
  return std::bit_cast<uint32_t>(static_cast<float>(sum));
}

template <double (*From)(uint16_t)>
__attribute__((noinline)) void float_dot(const DotOperands& o) {
  for (int m = 0; m < o.m; ++m) {
    for (int n = 0; n < o.n; ++n) set_dword(*o.c, m, n, float_element<From>(o, m, n));
  }
}

}  // namespace

void dot_portable(Op op, const DotOperands& operands) {
  if (is_int8_dot(op)) {
    int8_dot(op, operands);
    return;
  }
  const MxcsrGuard guard(kMxcsrDefault);
  if (op == Op::kTdpbf16ps) {
    float_dot<from_bf16>(operands);
  } else {
    float_dot<from_fp16>(operands);
  }
}

}  // namespace quern::amx_emu
