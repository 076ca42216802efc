#include "ops/validate.h"

#include "ops/checked.h"

namespace quern::inline v0 {
namespace {

constexpr Status bad(const char* text, int64_t v0, int64_t v1, const char* name) {
  return Status(StatusCode::kInvalidArgument, text, v0, v1, name);
}

const char* dtype_rule(DType expected) noexcept {
  switch (expected) {
    case DType::kF32:
      return "{s}.dtype ({0}) must be f32 (0)";
    case DType::kBF16:
      return "{s}.dtype ({0}) must be bf16 (1)";
    case DType::kF16:
      return "{s}.dtype ({0}) must be f16 (2)";
    case DType::kS8:
      return "{s}.dtype ({0}) must be s8 (3)";
    case DType::kU8:
      return "{s}.dtype ({0}) must be u8 (4)";
    case DType::kS32:
      return "{s}.dtype ({0}) must be s32 (5)";
  }
  return "{s}.dtype ({0}) is unknown";
}

}  // namespace

Status check_matrix(const MatrixView& view, const char* name, DType dtype, int64_t rows,
                    int64_t cols) noexcept {
  if (view.dtype != dtype) {
    return bad(dtype_rule(dtype), static_cast<int64_t>(view.dtype), 0, name);
  }
  if (view.rows != rows) return bad("{s}.rows ({0}) must be {1}", view.rows, rows, name);
  if (view.cols != cols) return bad("{s}.cols ({0}) must be {1}", view.cols, cols, name);
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
    return bad(dtype_rule(dtype), static_cast<int64_t>(view.dtype), 0, name);
  }
  if (view.size != size) return bad("{s}.size ({0}) must be {1}", view.size, size, name);
  if (size != 0 && view.data == nullptr) return bad("{s}.data is null", 0, 0, name);
  return {};
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
    return bad("desc.epilogue.activation ({0}) is unknown",
               static_cast<int64_t>(epilogue.activation), 0, "");
  }
  if (invariance != Invariance::kStrict && invariance != Invariance::kFastest) {
    return bad("desc.invariance ({0}) is unknown", static_cast<int64_t>(invariance), 0, "");
  }
  return {};
}

Status check_dtype(DType value, const char* name, DType first, DType second) noexcept {
  if (value == first || value == second) return {};
  return bad("{s} (dtype {0}) is not one this op supports", static_cast<int64_t>(value), 0, name);
}

}  // namespace quern::inline v0
