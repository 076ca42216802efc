#pragma once

#include <cstdint>

#include "model_smoke/reference_check/comparison.h"
#include "quern/dtype.h"
#include "reference/exact.h"

namespace quern::smoke {

// What the checks have in common: true values with bounds, and the test of one element. A right
// implementation holds, before its last rounding, a number in [value - bound, value + bound];
// rounding is monotone, so its output lies between the rounded ends (reference/exact.h).

using reference::Bounded;

/// u, the unit roundoff of f32.
inline constexpr double kU = reference::kUnitRoundoffF32;

/// n roundings in a row, whatever the order of a sum: |relative error| <= n u / (1 - n u).
constexpr double gamma(double n) noexcept {
  return n * kU / (1 - n * kU);
}

/// exp in f32, relative: 2 ulp. The C library's is within 1, Highway's within 1 by its own table.
inline constexpr double kExpError = 0x1p-22;

/// What f32 loses near and below its smallest normal number, absolute.
inline constexpr double kTiny = 0x1p-125;

/// How a kernel rounds to a bf16 output: the conversion instruction makes subnormals zeros, plain
/// rounding of the bits (the Highway layers) keeps them.
enum class OutputRounding : uint8_t { kInstruction, kPlain };

/// x rounded to bf16 in the middle of a formula: the rounded value, and how far the rounded ends
/// of its interval are from it. Zero where the whole interval rounds to one number.
Bounded rounded_to_bf16(Bounded x) noexcept;

class ElementCheck {
 public:
  explicit ElementCheck(DType dtype, OutputRounding rounding = OutputRounding::kPlain) noexcept
      : dtype_(dtype), rounding_(rounding) {}

  void add(int64_t row, int64_t col, double got, Bounded exact) noexcept;
  const Comparison& result() const noexcept { return result_; }

 private:
  double round(double x) const noexcept;

  DType dtype_;
  OutputRounding rounding_;
  Comparison result_;
};

}  // namespace quern::smoke
