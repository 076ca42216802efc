#include "ops/overlap.h"

#include "ops/validate.h"

namespace quern::inline v0 {

Region::Region(const MatrixView& view) noexcept
    : begin_(reinterpret_cast<uintptr_t>(view.data)),
      rows_(view.data == nullptr ? 0 : static_cast<uint64_t>(view.rows)),
      row_bytes_(static_cast<uint64_t>(view.cols) * size_of(view.dtype)),
      step_(static_cast<uint64_t>(row_step(view))) {}

Region::Region(const VectorView& view) noexcept
    : Region(view.data, static_cast<size_t>(view.size) * size_of(view.dtype)) {}

Region::Region(const void* data, size_t bytes) noexcept
    : begin_(reinterpret_cast<uintptr_t>(data)),
      rows_(data == nullptr ? 0 : 1),
      row_bytes_(bytes) {}

// The ranges answer for almost every call. Only where rows of one may lie in the gaps of the other
// (two column slices of one buffer) are the rows looked at, each with one division.
bool Region::overlaps(const Region& other) const noexcept {
  if (empty() || other.empty()) return false;
  if (end() <= other.begin_ || other.end() <= begin_) return false;
  if (one_piece() && other.one_piece()) return true;
  for (uint64_t row = 0; row < rows_; ++row) {
    if (other.touches(row_begin(row), row_begin(row) + row_bytes_)) return true;
  }
  return false;
}

bool Region::touches(uint64_t begin, uint64_t end) const noexcept {
  if (begin < begin_ + row_bytes_) return begin_ < end;  // no row before the first
  if (rows_ == 1) return false;
  const uint64_t row = (begin - begin_ - row_bytes_) / step_ + 1;  // the first that ends later
  return row < rows_ && row_begin(row) < end;
}

Region Region::moved_by(uint64_t bytes) const noexcept {
  Region other = *this;
  other.begin_ += bytes;
  return other;
}

// [M, H, D] as H matrices of [M, D], and dense [B, M, N], are one sequence of rows a fixed step
// apart, as is one row of every matrix. What is not is looked at matrix by matrix.
BatchRegion::BatchRegion(const BatchView& view) noexcept : first_(matrix_of(view)) {
  if (view.batch == 0) first_.rows_ = 0;
  const auto step = static_cast<uint64_t>(batch_step(view));
  if (step == 0) return;  // one matrix, or none
  const auto batch = static_cast<uint64_t>(view.batch);
  if (first_.rows_ == 1 || step == first_.rows_ * first_.step_) {
    if (first_.rows_ == 1) first_.step_ = step;
    first_.rows_ *= batch;
  } else if (first_.step_ == batch * step) {
    first_.rows_ *= batch;
    first_.step_ = step;
  } else {
    matrices_ = batch;
    step_ = step;
  }
}

bool BatchRegion::overlaps(const BatchRegion& other) const noexcept {
  if (first_.empty() || other.first_.empty()) return false;
  const auto end = [](const BatchRegion& r) {
    return r.first_.end() + (r.matrices_ - 1) * r.step_;
  };
  if (end(*this) <= other.first_.begin_ || end(other) <= first_.begin_) return false;
  for (uint64_t i = 0; i < matrices_; ++i) {
    const Region mine = first_.moved_by(i * step_);
    for (uint64_t j = 0; j < other.matrices_; ++j) {
      if (mine.overlaps(other.first_.moved_by(j * other.step_))) return true;
    }
  }
  return false;
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
