#include "model_smoke/reference_check/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model_smoke/reference_check/element_check.h"
#include "reference/numeric.h"

namespace quern::smoke {
namespace {

/// Orders elements by how much of their bound they use; above 1 where they exceed it.
double strain(const Comparison::Element& e) noexcept {
  if (e.distance <= e.allowed) return e.allowed > 0 ? e.distance / e.allowed : 0;
  return 1 + (e.distance - e.allowed) / (e.allowed + std::fabs(e.expected) * 0x1p-8 + 1e-30);
}

bool same_bits(double x, double y) noexcept {
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  return x == y && std::signbit(x) == std::signbit(y);
}

}  // namespace

const char* to_string(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::kEqual:
      return "equal";
    case Verdict::kWithinBound:
      return "within bound";
    case Verdict::kDiffers:
      return "DIFFERS";
  }
  return "?";
}

Verdict Comparison::verdict() const noexcept {
  if (outside > 0) return Verdict::kDiffers;
  return unequal > 0 ? Verdict::kWithinBound : Verdict::kEqual;
}

void Comparison::merge(const Comparison& other) noexcept {
  const bool first = unequal == 0;
  elements += other.elements;
  unequal += other.unequal;
  outside += other.outside;
  if (other.unequal > 0 && (first || strain(other.worst) > strain(worst))) worst = other.worst;
}

Bounded rounded_to_bf16(Bounded x) noexcept {
  const auto round = [](double v) { return reference::round_to(reference::kFormatBF16, v); };
  const double middle = round(x.value);
  return {middle, std::max(round(x.value + x.bound) - middle, middle - round(x.value - x.bound))};
}

double ElementCheck::round(double x) const noexcept {
  if (dtype_ == DType::kBF16 && rounding_ == OutputRounding::kPlain) {
    return reference::round_to(reference::kFormatBF16, x);
  }
  return reference::round_output(dtype_, x);
}

void ElementCheck::add(int64_t row, int64_t col, double got, Bounded exact) noexcept {
  Comparison one;
  one.elements = 1;
  one.worst = {row, col, got, round(exact.value), 0, 0};
  Comparison::Element& e = one.worst;
  if (!same_bits(got, e.expected)) {
    one.unequal = 1;
    const double low = round(exact.value - exact.bound), high = round(exact.value + exact.bound);
    e.allowed = std::max(high - e.expected, e.expected - low);
    e.distance = std::fabs(got - e.expected);
    if (std::isnan(e.distance)) e.distance = std::numeric_limits<double>::infinity();
    // Where f32 may overflow nothing can be held against a kernel (reference/exact.h).
    const bool unbounded = !std::isfinite(exact.bound) && !std::isnan(exact.value);
    const bool within = exact.bound > 0 && low <= got && got <= high;
    one.outside = within || unbounded ? 0 : 1;
  }
  result_.merge(one);
}

}  // namespace quern::smoke
