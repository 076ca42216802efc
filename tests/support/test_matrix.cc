#include "tests/support/test_matrix.h"

#include <cstring>

#include "reference/numeric.h"

namespace quern::test {
namespace {

constexpr unsigned char kGapByte = 0xFF;  // 0xffff and 0xffffffff are NaN in bf16, f16 and f32

size_t bytes_needed(DType dtype, int64_t rows, int64_t cols, int64_t stride) {
  if (rows <= 0 || cols <= 0) return 0;
  return static_cast<size_t>((rows - 1) * stride + cols) * size_of(dtype);
}

}  // namespace

TestMatrix::TestMatrix(DType dtype, int64_t rows, int64_t cols, int64_t pad, Placement place)
    : dtype_(dtype),
      rows_(rows),
      cols_(cols),
      stride_(cols + pad),
      buffer_(bytes_needed(dtype, rows, cols, cols + pad), place.flush, place.offset) {
  std::memset(buffer_.data(), kGapByte, buffer_.size());
}

unsigned char* TestMatrix::at(int64_t row, int64_t col) const {
  return buffer_.data() + static_cast<size_t>(row * stride_ + col) * size_of(dtype_);
}

void TestMatrix::set(int64_t row, int64_t col, double value) {
  reference::store(mutable_view(), row, col, value);
}

void TestMatrix::set_bits(int64_t row, int64_t col, uint32_t bits) {
  std::memcpy(at(row, col), &bits, size_of(dtype_));  // x86 is little-endian
}

double TestMatrix::get(int64_t row, int64_t col) const {
  return reference::load(view(), row, col);
}

uint32_t TestMatrix::bits(int64_t row, int64_t col) const {
  uint32_t bits = 0;
  std::memcpy(&bits, at(row, col), size_of(dtype_));
  return bits;
}

void TestMatrix::set_row(int64_t row, double value) {
  for (int64_t j = 0; j < cols_; ++j) set(row, j, value);
}

void TestMatrix::set_col(int64_t col, double value) {
  for (int64_t i = 0; i < rows_; ++i) set(i, col, value);
}

void TestMatrix::set_all(double value) {
  for (int64_t i = 0; i < rows_; ++i) set_row(i, value);
}

bool TestMatrix::surroundings_intact() const {
  const int64_t element = static_cast<int64_t>(size_of(dtype_));
  for (int64_t i = 0; cols_ > 0 && i + 1 < rows_; ++i) {
    const unsigned char* end = buffer_.data() + (i + 1) * stride_ * element;
    for (const unsigned char* p = buffer_.data() + (i * stride_ + cols_) * element; p < end; ++p) {
      if (*p != kGapByte) return false;
    }
  }
  return buffer_.slack_intact();
}

std::vector<uint32_t> element_bits(const MatrixView& m) {
  const size_t size = size_of(m.dtype);
  std::vector<uint32_t> out;
  out.reserve(static_cast<size_t>(m.rows * m.cols));
  for (int64_t i = 0; i < m.rows; ++i) {
    for (int64_t j = 0; j < m.cols; ++j) {
      uint32_t bits = 0;
      const char* p = static_cast<const char*>(m.data);
      std::memcpy(&bits, p + static_cast<size_t>(i * m.row_stride + j) * size, size);
      out.push_back(bits);
    }
  }
  return out;
}

}  // namespace quern::test
