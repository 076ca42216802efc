#pragma once

#include <cstdint>
#include <type_traits>

#include "quern/dtype.h"

namespace quern {
inline namespace v0 {

/// A row-major matrix somebody else owns. Strides are in elements. `row_stride >= cols`; the
/// elements between `cols` and `row_stride` are never read. No alignment is required.
struct MatrixView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;
};

/// As MatrixView, written through. Elements between `cols` and `row_stride` are never written.
struct MutableMatrixView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;

  operator MatrixView() const noexcept { return {data, dtype, rows, cols, row_stride}; }
};

/// `batch` row-major matrices of one shape somebody else owns, `batch_stride` elements apart.
/// Either stride may be the larger one, so that the heads of [M, H, D] are a batch of [M, D] (see
/// heads_view). `row_stride >= cols`; `batch_stride >= 0`, and 0 says that all of them are the same
/// matrix. What lies between rows and matrices is never read. No alignment is required.
struct BatchView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t batch = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
};

/// As BatchView, written through: no two matrices may share an element.
struct MutableBatchView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t batch = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;

  operator BatchView() const noexcept {
    return {data, dtype, batch, rows, cols, batch_stride, row_stride};
  }
};

/// A contiguous vector somebody else owns.
struct VectorView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t size = 0;
};

struct MutableVectorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t size = 0;

  operator VectorView() const noexcept { return {data, dtype, size}; }
};

namespace detail {
template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<bfloat16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::kS8;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kS32;
};
}  // namespace detail

/// Views over typed memory; `row_stride` 0 means dense (= cols).
template <typename T>
MatrixView matrix_view(const T* data, int64_t rows, int64_t cols, int64_t row_stride = 0) noexcept {
  return {data, detail::DTypeOf<T>::value, rows, cols, row_stride ? row_stride : cols};
}
template <typename T>
MutableMatrixView mutable_matrix_view(T* data, int64_t rows, int64_t cols,
                                      int64_t row_stride = 0) noexcept {
  static_assert(!std::is_const<T>::value, "a mutable view needs mutable memory");
  return {data, detail::DTypeOf<T>::value, rows, cols, row_stride ? row_stride : cols};
}
/// Dense [batch, rows, cols].
template <typename T>
BatchView batch_view(const T* data, int64_t batch, int64_t rows, int64_t cols) noexcept {
  return {data, detail::DTypeOf<T>::value, batch, rows, cols, rows * cols, cols};
}
template <typename T>
MutableBatchView mutable_batch_view(T* data, int64_t batch, int64_t rows, int64_t cols) noexcept {
  static_assert(!std::is_const<T>::value, "a mutable view needs mutable memory");
  return {data, detail::DTypeOf<T>::value, batch, rows, cols, rows * cols, cols};
}
/// Dense [rows, heads, cols] as `heads` matrices of [rows, cols].
template <typename T>
BatchView heads_view(const T* data, int64_t rows, int64_t heads, int64_t cols) noexcept {
  return {data, detail::DTypeOf<T>::value, heads, rows, cols, cols, heads * cols};
}
template <typename T>
MutableBatchView mutable_heads_view(T* data, int64_t rows, int64_t heads, int64_t cols) noexcept {
  static_assert(!std::is_const<T>::value, "a mutable view needs mutable memory");
  return {data, detail::DTypeOf<T>::value, heads, rows, cols, cols, heads * cols};
}
template <typename T>
VectorView vector_view(const T* data, int64_t size) noexcept {
  return {data, detail::DTypeOf<T>::value, size};
}
template <typename T>
MutableVectorView mutable_vector_view(T* data, int64_t size) noexcept {
  return {data, detail::DTypeOf<T>::value, size};
}

}  // namespace v0
}  // namespace quern
