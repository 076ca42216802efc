#include "ops/overlap.h"

#include <utility>

#include "ops/validate.h"

namespace quern::inline v0 {
namespace {

/// Of pieces `step` apart, the first of which ends at `end`: the index of the first that ends after
/// `address`. A single piece may have step 0.
uint64_t first_beyond(uint64_t address, uint64_t end, uint64_t step) noexcept {
  if (address < end) return 0;
  return step == 0 ? 1 : (address - end) / step + 1;
}

}  // namespace

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
// (two column slices of one buffer) are those in the other's range looked at, each with one
// division.
bool Region::overlaps(const Region& other) const noexcept {
  if (empty() || other.empty()) return false;
  if (end() <= other.begin_ || other.end() <= begin_) return false;
  if (one_piece() && other.one_piece()) return true;
  uint64_t row = first_beyond(other.begin_, begin_ + row_bytes_, step_);
  for (; row < rows_ && row_begin(row) < other.end(); ++row) {
    if (other.touches(row_begin(row), row_begin(row) + row_bytes_)) return true;
  }
  return false;
}

bool Region::touches(uint64_t begin, uint64_t end) const noexcept {
  const uint64_t row = first_beyond(begin, begin_ + row_bytes_, step_);
  return row < rows_ && row_begin(row) < end;
}

Region Region::moved_by(uint64_t bytes) const noexcept {
  Region other = *this;
  other.begin_ += bytes;
  return other;
}

// [M, H, D] as H matrices of [M, D], and dense [B, M, N], are one sequence of rows a fixed step
// apart, as is one row of every matrix. What is not is looked at piece by piece. A piece is a
// matrix, or row r of every matrix where that makes fewer neighbours: where only the rows are in
// ranges of their own (heads with a gap behind each row of all), or neither is and there are fewer
// rows.
BatchRegion::BatchRegion(const BatchView& view) noexcept : first_(matrix_of(view)) {
  if (view.batch == 0) first_.rows_ = 0;
  if (first_.empty()) return;
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
    const bool matrices_apart = step >= first_.end() - first_.begin_;
    const bool rows_apart = first_.step_ >= (batch - 1) * step + first_.row_bytes_;
    pieces_ = batch;
    step_ = step;
    if (!matrices_apart && (rows_apart || first_.rows_ < batch)) {
      std::swap(pieces_, first_.rows_);
      std::swap(step_, first_.step_);
    }
  }
}

// Of the other's pieces only those in a piece's range are looked at. Where pieces have ranges of
// their own on both sides that is a walk along both, linear in the batch, as run() does it.
bool BatchRegion::overlaps(const BatchRegion& other) const noexcept {
  if (first_.empty() || other.first_.empty()) return false;
  uint64_t i = first_beyond(other.first_.begin_, first_.end(), step_);
  for (; i < pieces_; ++i) {
    const Region mine = first_.moved_by(i * step_);
    uint64_t j = first_beyond(mine.begin_, other.first_.end(), other.step_);
    for (; j < other.pieces_; ++j) {
      const Region its = other.first_.moved_by(j * other.step_);
      if (its.begin_ >= mine.end()) break;
      if (mine.overlaps(its)) return true;
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
