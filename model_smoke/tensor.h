#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>

#include "quern/tensor_view.h"

namespace quern::smoke {

constexpr int64_t round_up(int64_t n, int64_t multiple) noexcept {
  return (n + multiple - 1) / multiple * multiple;
}

/// 64-byte aligned bytes that grow and never shrink, so that a buffer reused for every token is
/// allocated once. Growing loses the content.
class AlignedBuffer {
 public:
  std::byte* data() const noexcept { return data_.get(); }
  size_t size() const noexcept { return size_; }

  void reserve(size_t bytes) {
    if (bytes <= size_) return;
    const size_t rounded = (bytes + 63) / 64 * 64;
    void* p = std::aligned_alloc(64, rounded);
    if (p == nullptr) throw std::bad_alloc();
    data_.reset(static_cast<std::byte*>(p));
    size_ = rounded;
  }

 private:
  struct Free {
    void operator()(std::byte* p) const noexcept { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

/// An owned dense matrix. `resize` keeps the memory when it is large enough; content is then
/// whatever was there.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, int64_t rows, int64_t cols) { resize(dtype, rows, cols); }

  void resize(DType dtype, int64_t rows, int64_t cols) {
    buffer_.reserve(std::max<size_t>(1, size_of(dtype) * static_cast<size_t>(rows * cols)));
    dtype_ = dtype;
    rows_ = rows;
    cols_ = cols;
  }
  void zero() noexcept {
    if (buffer_.data() != nullptr) std::memset(buffer_.data(), 0, buffer_.size());
  }

  DType dtype() const noexcept { return dtype_; }
  int64_t rows() const noexcept { return rows_; }
  int64_t cols() const noexcept { return cols_; }

  template <typename T>
  T* row(int64_t r) noexcept {
    return reinterpret_cast<T*>(buffer_.data()) + r * cols_;
  }
  template <typename T>
  const T* row(int64_t r) const noexcept {
    return reinterpret_cast<const T*>(buffer_.data()) + r * cols_;
  }

  MatrixView view() const noexcept { return {buffer_.data(), dtype_, rows_, cols_, cols_}; }
  MutableMatrixView mutable_view() noexcept {
    return {buffer_.data(), dtype_, rows_, cols_, cols_};
  }
  VectorView vector() const noexcept { return {buffer_.data(), dtype_, rows_ * cols_}; }

 private:
  AlignedBuffer buffer_;
  DType dtype_ = DType::kF32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
};

namespace detail {

/// A view's data pointer moved by a number of elements; works for both kinds of matrix view.
template <typename View>
void advance(View& m, int64_t elements) noexcept {
  using Data = std::remove_pointer_t<decltype(m.data)>;
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  m.data = static_cast<Byte*>(m.data) + elements * static_cast<int64_t>(size_of(m.dtype));
}

}  // namespace detail

/// `count` columns of a MatrixView or MutableMatrixView from column `first` on.
template <typename View>
View columns(View m, int64_t first, int64_t count) noexcept {
  detail::advance(m, first);
  m.cols = count;
  return m;
}
/// `count` rows from row `first` on.
template <typename View>
View rows_of(View m, int64_t first, int64_t count) noexcept {
  detail::advance(m, first * m.row_stride);
  m.rows = count;
  return m;
}

/// Element access of the scalar code: every number is a float while it is worked on.
inline float to_float(float x) noexcept {
  return x;
}
inline float to_float(bfloat16 x) noexcept {
  return x.to_float();
}
template <typename T>
T from_float(float x) noexcept {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return bfloat16::from_float(x);
  } else {
    return x;
  }
}
/// What x becomes when it is stored as T.
template <typename T>
float round_to(float x) noexcept {
  return to_float(from_float<T>(x));
}

}  // namespace quern::smoke
