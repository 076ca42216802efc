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

Status check_apart(const Region& written, const Region& other, const char* rule,
                   const char* subject) noexcept {
  if (!written.overlaps(other)) return {};
  return Status(StatusCode::kInvalidArgument, rule, written.distance_to(other), 0, subject);
}

}  // namespace quern::inline v0
