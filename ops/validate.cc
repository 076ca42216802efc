#include "ops/validate.h"

#include "ops/checked.h"
#include "ops/status_text.h"

namespace quern::inline v0 {
namespace {

constexpr Status bad(const char* text, int64_t v0, int64_t v1, const char* name) {
  return Status(StatusCode::kInvalidArgument, text, v0, v1, name);
}

Status wrong_dtype(DType value, DType expected, const char* name) noexcept {
  return bad("{s}.dtype ({0:dtype}) must be {1:dtype}", status_value(value), status_value(expected),
             name);
}

Status check_shape(const MatrixView& view, const char* name, DType dtype, int64_t rows,
                   int64_t cols) noexcept {
  if (view.dtype != dtype) {
    return wrong_dtype(view.dtype, dtype, name);
  }
  if (view.rows != rows) return bad("{s}.rows ({0}) must be {1}", view.rows, rows, name);
  if (view.cols != cols) return bad("{s}.cols ({0}) must be {1}", view.cols, cols, name);
  return {};
}

}  // namespace

Status check_matrix(const MatrixView& view, const char* name, DType dtype, int64_t rows,
                    int64_t cols) noexcept {
  if (const Status s = check_shape(view, name, dtype, rows, cols); !s.ok()) return s;
  if (rows == 0 || cols == 0) return {};
  if (view.data == nullptr) return bad("{s}.data is null", 0, 0, name);
  if (view.row_stride < cols) {
    return bad("{s}.row_stride ({0}) must be at least {s}.cols ({1})", view.row_stride, cols, name);
  }
  const CheckedSize elements = CheckedSize(rows - 1) * view.row_stride + cols;
  if (rows > kMaxExtent || !elements.at_most(kMaxExtent)) {
    return Status(StatusCode::kTooLarge,
                  "{s} of {0} rows with row_stride {1} spans more than 2^48 elements", rows,
                  view.row_stride, name);
  }
  return {};
}

Status check_vector(const VectorView& view, const char* name, DType dtype, int64_t size) noexcept {
  if (view.dtype != dtype) {
    return wrong_dtype(view.dtype, dtype, name);
  }
  if (view.size != size) return bad("{s}.size ({0}) must be {1}", view.size, size, name);
  if (size != 0 && view.data == nullptr) return bad("{s}.data is null", 0, 0, name);
  return {};
}

Status check_batch(const BatchView& view, const char* name, DType dtype, int64_t batch,
                   int64_t rows, int64_t cols) noexcept {
  if (view.batch != batch) return bad("{s}.batch ({0}) must be {1}", view.batch, batch, name);
  if (batch == 0) return check_shape(matrix_of(view), name, dtype, rows, cols);
  if (const Status s = check_matrix(matrix_of(view), name, dtype, rows, cols); !s.ok()) return s;
  if (batch == 1 || rows == 0 || cols == 0) return {};
  if (view.batch_stride < 0) {
    return bad("{s}.batch_stride ({0}) must not be negative", view.batch_stride, 0, name);
  }
  const CheckedSize elements = CheckedSize(batch - 1) * view.batch_stride +
                               CheckedSize(rows - 1) * (rows > 1 ? view.row_stride : 0) + cols;
  if (batch > kMaxExtent || !elements.at_most(kMaxExtent)) {
    return Status(StatusCode::kTooLarge,
                  "{s} of {0} matrices with batch_stride {1} spans more than 2^48 elements", batch,
                  view.batch_stride, name);
  }
  return {};
}

int64_t batch_step(const BatchView& view) noexcept {
  if (view.batch < 2 || view.rows == 0 || view.cols == 0) return 0;
  return view.batch_stride * static_cast<int64_t>(size_of(view.dtype));
}

int64_t row_step(const MatrixView& view) noexcept {
  if (view.rows < 2 || view.cols == 0) return 0;
  return view.row_stride * static_cast<int64_t>(size_of(view.dtype));
}

Status check_count(int64_t value, const char* name, int64_t limit) noexcept {
  if (value < 0) return bad("{s} ({0}) must not be negative", value, 0, name);
  if (value > limit) {
    return Status(StatusCode::kTooLarge, "{s} ({0}) must be at most {1}", value, limit, name);
  }
  return {};
}

Status check_enums(const Epilogue& epilogue, Invariance invariance) noexcept {
  if (epilogue.activation != Activation::kNone && epilogue.activation != Activation::kSiluMul) {
    return bad("desc.epilogue.activation ({0}) must be kNone (0) or kSiluMul (1)",
               static_cast<int64_t>(epilogue.activation), 0, "");
  }
  if (invariance != Invariance::kStrict && invariance != Invariance::kFastest) {
    return bad("desc.invariance ({0}) must be kStrict (0) or kFastest (1)",
               static_cast<int64_t>(invariance), 0, "");
  }
  return {};
}

Status check_dtype(DType value, const char* name, std::initializer_list<DType> allowed) noexcept {
  for (const DType t : allowed) {
    if (value == t) return {};
  }
  return bad("{s} ({0:dtype}) must be {1:dtypes}", status_value(value), status_value(allowed),
             name);
}

}  // namespace quern::inline v0
