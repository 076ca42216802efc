#include "ops/overlap.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ops/checked.h"
#include "ops/validate.h"

namespace quern::inline v0 {
namespace {

/// The points 0, step, 2 step, ...
struct Steps {
  int64_t count = 1;
  int64_t step = 0;

  int64_t extent() const noexcept { return (count - 1) * step; }
};

/// Into [0, m), whatever a's sign.
int64_t residue(int64_t a, int64_t m) noexcept {
  return a % m < 0 ? a % m + m : a % m;
}

/// The smallest x in [0, most] with low <= a x mod m <= high, or -1. 0 <= a < m and
/// 0 <= low <= high < m, and a * most is representable.
///
/// As Euclid's algorithm: a x = m y + r with r in the range. Where no multiple of a lies in the
/// range itself, r is one where m y mod a is in the range of the -r mod a, the same question for
/// the number of times y that a x passes m.
int64_t first_residue_in(int64_t low, int64_t high, int64_t a, int64_t m, int64_t most) noexcept {
  if (low == 0) return 0;
  if (a == 0) return -1;
  int64_t x = ceil_div(low, a);
  if (x > most) return -1;
  if (a * x <= high) return x;
  const int64_t y = first_residue_in(residue(-high, a), residue(-low, a), m % a, a, a * most / m);
  if (y < 0) return -1;
  x = ceil_div(low + m * y, a);
  return x <= most ? x : -1;
}

/// Whether a point of `s` and a point of `t` have a sum in [low, high].
bool sum_in(int64_t low, int64_t high, Steps s, Steps t) noexcept {
  if (s.step > t.step) std::swap(s, t);
  if (t.step == 0) return low <= 0 && high >= 0;
  if (high < 0) return false;
  // Those points of t from which some of s can get there at all.
  const int64_t first = ceil_div(std::max<int64_t>(low - s.extent(), 0), t.step);
  const int64_t last = std::min(high / t.step, t.count - 1);
  if (first > last) return false;
  // In steps of s from one of them the last point up to `high` is the rest of a division below it.
  const int64_t range = high - low + 1;
  if (s.step <= range) return true;
  const int64_t rest = residue(high - first * t.step, s.step);
  if (rest < range) return true;
  const int64_t wanted = s.step - rest;
  return first_residue_in(wanted, wanted + range - 1, residue(-t.step, s.step), s.step,
                          last - first) >= 0;
}

/// What the distances between two operands' rows are made of.
class Distances {
 public:
  void add(int64_t count, int64_t step) noexcept {
    if (count < 2) return;
    for (int i = 0; i < size_; ++i) {
      if (steps_[static_cast<size_t>(i)].step != step) continue;
      steps_[static_cast<size_t>(i)].count += count - 1;
      return;
    }
    steps_[static_cast<size_t>(size_++)] = {count, step};
  }

  /// Whether one is in [low, high]. Two sets of steps are one question, any further ones are tried
  /// one by one: the smallest, which are together no more than the rows of the larger operand.
  bool any_in(int64_t low, int64_t high) noexcept {
    std::sort(steps_.begin(), steps_.end(),
              [](const Steps& x, const Steps& y) { return x.count > y.count; });
    for (int64_t i = 0; i < steps_[2].count; ++i) {
      for (int64_t j = 0; j < steps_[3].count; ++j) {
        const int64_t at = i * steps_[2].step + j * steps_[3].step;
        if (at > high) break;
        if (sum_in(low - at, high - at, steps_[0], steps_[1])) return true;
      }
    }
    return false;
  }

 private:
  std::array<Steps, 4> steps_;
  int size_ = 0;
};

}  // namespace

Region::Region(const MatrixView& view) noexcept
    : begin_(reinterpret_cast<uintptr_t>(view.data)),
      rows_(view.data == nullptr ? 0 : view.rows),
      row_bytes_(view.cols * static_cast<int64_t>(size_of(view.dtype))),
      step_(row_step(view)) {
  if (rows_ < 2 || step_ != row_bytes_) return;
  row_bytes_ *= rows_;
  rows_ = 1;
}

Region::Region(const VectorView& view) noexcept
    : Region(view.data, static_cast<size_t>(view.size) * size_of(view.dtype)) {}

Region::Region(const void* data, size_t bytes) noexcept
    : begin_(reinterpret_cast<uintptr_t>(data)),
      rows_(data == nullptr ? 0 : 1),
      row_bytes_(static_cast<int64_t>(bytes)) {}

bool Region::overlaps(const Region& other) const noexcept {
  return BatchRegion(*this).overlaps(BatchRegion(other));
}

// [M, H, D] as H matrices of [M, D], and dense [B, M, N], are one sequence of rows a fixed step
// apart, as is one row of every matrix.
BatchRegion::BatchRegion(const BatchView& view) noexcept : first_(matrix_of(view)) {
  if (view.batch == 0) first_.rows_ = 0;
  if (first_.empty()) return;
  const int64_t step = batch_step(view);
  if (step == 0) return;  // one matrix, or none
  if (first_.rows_ == 1 || first_.step_ == view.batch * step) {
    first_.step_ = step;
    first_.rows_ *= view.batch;
  } else if (step == first_.rows_ * first_.step_) {
    first_.rows_ *= view.batch;
  } else {
    pieces_ = view.batch;
    step_ = step;
  }
}

int64_t BatchRegion::extent() const noexcept {
  return (pieces_ - 1) * step_ + (first_.rows_ - 1) * first_.step_;
}

// Row p of this one and row q of the other share a byte where q - p is above minus the other's
// length and below this one's. Row by row that would be a product of four numbers of rows and
// matrices, and run() pays for it; but of points in steps only the sums of steps count.
bool BatchRegion::overlaps(const BatchRegion& other) const noexcept {
  if (first_.empty() || other.first_.empty()) return false;
  // From the last row of this one to the first of the other, so that all steps go forwards.
  const int64_t first = distance_to(other) - extent();
  const int64_t low = 1 - other.first_.row_bytes_ - first;
  const int64_t high = first_.row_bytes_ - 1 - first;
  if (high < 0 || low > extent() + other.extent()) return false;
  Distances distances;
  distances.add(pieces_, step_);
  distances.add(first_.rows_, first_.step_);
  distances.add(other.pieces_, other.step_);
  distances.add(other.first_.rows_, other.first_.step_);
  return distances.any_in(low, high);
}

// Rows of one matrix are apart, as row_stride >= cols. Row r of a matrix and row r + q of one d
// matrices before it begin d * batch_stride - q * row_stride apart, so for each d only the two q
// next to the quotient matter.
bool overlaps_itself(const BatchView& view) noexcept {
  if (view.batch < 2 || view.rows == 0 || view.cols == 0) return false;
  if (view.batch_stride < view.cols) return true;
  if (view.rows == 1) return false;
  const int64_t stride = view.row_stride;
  if (stride >= (view.batch - 1) * view.batch_stride + view.cols) return false;
  for (int64_t d = 1; d < view.batch; ++d) {
    const int64_t q = d * view.batch_stride / stride;
    if (q >= view.rows) return false;
    const int64_t rest = d * view.batch_stride % stride;
    if (rest < view.cols) return true;
    if (q + 1 < view.rows && stride - rest < view.cols) return true;
  }
  return false;
}

Status check_apart(const Region& written, const Region& other, const char* rule,
                   const char* subject) noexcept {
  return check_apart(BatchRegion(written), BatchRegion(other), rule, subject);
}

Status check_apart(const BatchRegion& written, const BatchRegion& other, const char* rule,
                   const char* subject) noexcept {
  if (!written.overlaps(other)) return {};
  return Status(StatusCode::kInvalidArgument, rule, written.distance_to(other), 0, subject);
}

}  // namespace quern::inline v0
