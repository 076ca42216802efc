#pragma once

#include <cstddef>
#include <cstdint>

#include "quern/span.h"
#include "quern/status.h"
#include "quern/tensor_view.h"

namespace quern::inline v0 {

/// The bytes of an operand: rows of `row_bytes`, `step` apart. The gaps between rows are not part
/// of it, so column slices of one buffer lie apart. The views have been checked.
class Region {
 public:
  explicit Region(const MatrixView& view) noexcept;
  explicit Region(const VectorView& view) noexcept;
  Region(const void* data, size_t bytes) noexcept;

  bool overlaps(const Region& other) const noexcept;
  /// Bytes from the start of this one to the start of the other, for messages.
  int64_t distance_to(const Region& other) const noexcept {
    return static_cast<int64_t>(other.begin_ - begin_);
  }

 private:
  friend class BatchRegion;
  bool empty() const noexcept { return rows_ == 0 || row_bytes_ == 0; }

  uint64_t begin_ = 0;
  int64_t rows_ = 0;
  int64_t row_bytes_ = 0;
  int64_t step_ = 0;
};

/// The bytes of a batch of matrices, the gaps between rows and matrices again not among them: heads
/// of one buffer lie apart however they interleave.
class BatchRegion {
 public:
  explicit BatchRegion(const BatchView& view) noexcept;
  explicit BatchRegion(const Region& region) noexcept : first_(region) {}

  bool overlaps(const BatchRegion& other) const noexcept;
  int64_t distance_to(const BatchRegion& other) const noexcept {
    return first_.distance_to(other.first_);
  }

 private:
  /// From the first byte to behind the last.
  int64_t extent() const noexcept;

  Region first_;        ///< a matrix, or everything
  int64_t pieces_ = 1;  ///< of its form, `step_` bytes apart
  int64_t step_ = 0;
};

/// Whether two rows of the batch, of one matrix or of two, share an element.
bool overlaps_itself(const BatchView& view) noexcept;

/// kInvalidArgument where the two overlap. In `rule` {s} is `subject` and {0} the distance in bytes
/// from `written` to `other`.
Status check_apart(const Region& written, const Region& other, const char* rule,
                   const char* subject) noexcept;
Status check_apart(const BatchRegion& written, const BatchRegion& other, const char* rule,
                   const char* subject) noexcept;

}  // namespace quern::inline v0
