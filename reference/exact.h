#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "quern/tensor_view.h"
#include "reference/numeric.h"

/// True values with error bounds. A kernel that keeps the numeric contract holds, before its last
/// rounding, a number in [value - bound, value + bound]; since rounding to nearest is monotone, its
/// output lies between the rounded ends of that interval. `accepts` is that test.
namespace quern::reference {

inline constexpr double kUnitRoundoffF32 = 0x1p-24;

struct Bounded {
  double value = 0;
  double bound = 0;
};

/// What the epilogue of a whole GEMM gives, before the rounding to C's type; row-major [rows,
/// cols].
struct Exact {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<Bounded> element;

  const Bounded& at(int64_t row, int64_t col) const {
    return element[static_cast<size_t>(row * cols + col)];
  }
};

/// One f32 operation on top of x: half an ulp of the result, at least half the smallest subnormal.
/// Where the result may overflow nothing can be said and the bound is infinite.
inline Bounded rounded_to_f32(Bounded x) {
  const double reach = std::fabs(x.value) + x.bound;
  x.bound += reach * kUnitRoundoffF32 + 0x1p-150;
  if (std::isfinite(x.value) && reach >= 0x1p128) x.bound = std::numeric_limits<double>::infinity();
  return x;
}

/// f32 accumulation of K products in one chain of fused multiply-adds, given the true sum and the
/// sum of magnitudes. Each step rounds once, (1 + d) with |d| <= u = 2^-24, so the error is at most
/// K u / (1 - K u) sum|a b| <= 2 K u sum|a b| while K u <= 1/2. The bf16 dot product also flushes
/// subnormal results: less than 2^-126 more a step. (Subnormal inputs are zero in the true sum.)
inline Bounded f32_chain(double sum, double magnitude, int64_t k) {
  const double steps = static_cast<double>(k);
  if (std::isfinite(sum) && magnitude >= 0x1p127) {
    return {sum, std::numeric_limits<double>::infinity()};  // a partial sum may have overflowed
  }
  return {sum, 2 * steps * kUnitRoundoffF32 * magnitude + steps * 0x1p-126};
}

inline Bounded times(Bounded x, double factor) {
  return rounded_to_f32({x.value * factor, x.bound * std::fabs(factor)});
}
inline Bounded plus(Bounded x, double addend) {
  return rounded_to_f32({x.value + addend, x.bound});
}

/// silu(gate) * up in f32. With exp within 2 ulp (relative 2^-22), e = exp(-g) and the three
/// roundings of 1 + e, the quotient and the product, the relative error is at most
/// 2^-22 e/(1+e) + 3 * 2^-24 < 4 * 2^-23. Below g = -88 the exponential overflows and the result
/// may be zero where the truth is up to 88.8 e^-88.7 < 2^-121. |silu'| <= 1.1 carries the gate's
/// error. An infinite `up` asks whether the activation is zero (NaN) or not (infinite), which
/// nobody can say below -87, where e may overflow, and near zero, where silu
/// is half the gate and may be rounded to zero.
inline Bounded silu_times(Bounded gate, Bounded up) {
  if (std::isinf(gate.value)) return {0, std::numeric_limits<double>::infinity()};
  if (std::isinf(up.value) && !std::isnan(gate.value)) {
    const bool not_zero = std::fabs(gate.value) - gate.bound > 0x1p-125;
    const bool zero = gate.value == 0 && gate.bound == 0;
    const bool known =
        (zero || not_zero) && gate.value - gate.bound > -87 && std::isfinite(up.bound);
    if (!known) return {0, std::numeric_limits<double>::infinity()};
    return {silu(gate.value) * up.value, 0};
  }
  const double activated = silu(gate.value);
  const double drift = 1.1 * gate.bound;
  const double up_reach = std::fabs(up.value) + up.bound;
  const double own = 4 * 0x1p-23 * (std::fabs(activated) + drift) + 0x1p-121;
  return {activated * up.value,
          drift * up_reach + std::fabs(activated) * up.bound + own * up_reach + 0x1p-150};
}

/// The last step: round to nearest even to the type of C (kF32 or kBF16). The bf16 conversion
/// instruction counts f32 subnormals as zero whatever MXCSR says, so results below the normal range
/// are zeros of their sign in a bf16 C; an f32 C keeps them. Monotone, as all of `accepts` needs.
inline double round_output(DType t, double v) {
  if (t == DType::kF32) return static_cast<double>(static_cast<float>(v));
  if (std::fabs(v) < 0x1p-126) return std::copysign(0.0, v);
  return round_to(kFormatBF16, v);
}

/// Whether `actual`, an element of type `t`, is one of the values allowed.
inline bool accepts(const Bounded& x, DType t, double actual) {
  if (std::isnan(x.value)) return std::isnan(actual);
  if (!std::isfinite(x.bound)) return true;
  if (std::isinf(x.value)) return actual == x.value;
  return round_output(t, x.value - x.bound) <= actual &&
         actual <= round_output(t, x.value + x.bound);
}

/// C = the values, rounded.
inline void store_output(const MutableMatrixView& c, const Exact& exact) {
  for (int64_t i = 0; i < exact.rows; ++i) {
    for (int64_t j = 0; j < exact.cols; ++j) {
      store(c, i, j, round_output(c.dtype, exact.at(i, j).value));
    }
  }
}

}  // namespace quern::reference
