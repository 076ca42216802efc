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
