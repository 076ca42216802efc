#pragma once

#include <cstdint>
#include <optional>

namespace quern::inline v0 {

/// A 64-bit size that remembers whether any step on the way to it overflowed. Shapes come from
/// outside and may be near 2^63, so every byte count is computed with this:
///   const CheckedSize bytes = CheckedSize(rows) * row_stride * 4 + header;
///   if (!bytes.ok()) return Status(StatusCode::kTooLarge, ...);
class CheckedSize {
 public:
  constexpr CheckedSize(int64_t value) noexcept : value_(value) {}  // NOLINT: implicit by design

  /// False once a step left [-2^63, 2^63) or rounded up to nothing.
  constexpr bool ok() const noexcept { return ok_; }
  /// Only meaningful when ok().
  constexpr int64_t value() const noexcept { return value_; }
  constexpr std::optional<int64_t> get() const noexcept {
    return ok_ ? std::optional<int64_t>(value_) : std::nullopt;
  }
  /// ok() and in [0, limit].
  constexpr bool at_most(int64_t limit) const noexcept {
    return ok_ && value_ >= 0 && value_ <= limit;
  }

  friend constexpr CheckedSize operator+(CheckedSize x, CheckedSize y) noexcept {
    CheckedSize r(0);
    const bool overflow = __builtin_add_overflow(x.value_, y.value_, &r.value_);
    r.ok_ = x.ok_ && y.ok_ && !overflow;
    return r;
  }
  friend constexpr CheckedSize operator-(CheckedSize x, CheckedSize y) noexcept {
    CheckedSize r(0);
    const bool overflow = __builtin_sub_overflow(x.value_, y.value_, &r.value_);
    r.ok_ = x.ok_ && y.ok_ && !overflow;
    return r;
  }
  friend constexpr CheckedSize operator*(CheckedSize x, CheckedSize y) noexcept {
    CheckedSize r(0);
    const bool overflow = __builtin_mul_overflow(x.value_, y.value_, &r.value_);
    r.ok_ = x.ok_ && y.ok_ && !overflow;
    return r;
  }

  /// The next multiple of `step`. Not ok for a negative size or a step below 1.
  constexpr CheckedSize round_up(int64_t step) const noexcept {
    CheckedSize r = *this;
    if (step < 1 || value_ < 0) {
      r.ok_ = false;
      return r;
    }
    const int64_t rest = value_ % step;
    return rest == 0 ? r : r + (step - rest);
  }

 private:
  int64_t value_ = 0;
  bool ok_ = true;
};

/// False, and *out untouched, when the result does not fit.
constexpr bool checked_mul(int64_t x, int64_t y, int64_t* out) noexcept {
  const CheckedSize r = CheckedSize(x) * y;
  if (r.ok()) *out = r.value();
  return r.ok();
}
constexpr bool checked_add(int64_t x, int64_t y, int64_t* out) noexcept {
  const CheckedSize r = CheckedSize(x) + y;
  if (r.ok()) *out = r.value();
  return r.ok();
}

/// ceil(x / y) for x >= 0, y >= 1; cannot overflow.
constexpr int64_t ceil_div(int64_t x, int64_t y) noexcept {
  return x / y + (x % y != 0);
}

}  // namespace quern::inline v0
