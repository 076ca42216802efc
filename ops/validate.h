#pragma once

#include <cstdint>
#include <initializer_list>

#include "quern/epilogue.h"
#include "quern/status.h"
#include "quern/tensor_view.h"

namespace quern::inline v0 {

/// Largest row, column or element count of an operand. Far above any memory, far enough below 2^63
/// that bytes of it and sums of a few of them cannot overflow.
constexpr int64_t kMaxExtent = int64_t{1} << 48;

/// The operand is what the plan expects: dtype, shape, `row_stride >= cols`, a pointer where there
/// are elements, and an address range that fits. `name` is the argument's name in messages.
Status check_matrix(const MatrixView& view, const char* name, DType dtype, int64_t rows,
                    int64_t cols) noexcept;
Status check_vector(const VectorView& view, const char* name, DType dtype, int64_t size) noexcept;

/// As check_matrix, for a batch: `batch_stride >= 0` besides.
Status check_batch(const BatchView& view, const char* name, DType dtype, int64_t batch,
                   int64_t rows, int64_t cols) noexcept;

/// The first matrix of a checked batch; the others lie batch_step(view) bytes apart.
inline MatrixView matrix_of(const BatchView& view) noexcept {
  return {view.data, view.dtype, view.rows, view.cols, view.row_stride};
}
/// 0 where there is no second matrix to reach, or no element in it.
int64_t batch_step(const BatchView& view) noexcept;

/// Bytes from one row of a checked view to the next. 0 where there is no next row to reach, so that
/// a stride nobody walks may be anything and a null view is never moved.
int64_t row_step(const MatrixView& view) noexcept;

/// A count of the Desc: 0 <= value <= limit.
Status check_count(int64_t value, const char* name, int64_t limit) noexcept;

/// Values of a newer header must not quietly mean an older default.
Status check_enums(const Epilogue& epilogue, Invariance invariance) noexcept;

/// A dtype is one of those that the op takes.
Status check_dtype(DType value, const char* name, std::initializer_list<DType> allowed) noexcept;

}  // namespace quern::inline v0
