#include "bench/operands.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace quern::bench {
namespace {

/// splitmix64: every seed gives another sequence of full period.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t bits() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// In [0, 1).
  float unit() { return static_cast<float>(bits() >> 40) * 0x1p-24f; }

 private:
  uint64_t state_;
};

/// Of a number in f16's normal range, cut off: what a fill draws is as good either way.
uint16_t f16_bits(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  const uint32_t exponent = (bits >> 23 & 0xff) - 127 + 15;
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3ff));
}

template <typename Value>
void fill_with(const Matrix& m, Value value) {
  const size_t count = static_cast<size_t>(m.rows * m.cols);
  if (m.dtype == DType::kF16) {
    auto* p = reinterpret_cast<uint16_t*>(m.buffer.data());
    for (size_t i = 0; i < count; ++i) p[i] = f16_bits(value());
  } else if (m.dtype == DType::kF32) {
    float* p = reinterpret_cast<float*>(m.buffer.data());
    for (size_t i = 0; i < count; ++i) p[i] = value();
  } else {
    bfloat16* p = reinterpret_cast<bfloat16*>(m.buffer.data());
    for (size_t i = 0; i < count; ++i) p[i] = bfloat16::from_float(value());
  }
}

}  // namespace

void fill(const Matrix& m, uint64_t seed, double scale) {
  Random random(seed);
  const float s = static_cast<float>(scale);
  if (size_of(m.dtype) == 1 || m.dtype == DType::kS32) {
    const size_t count = static_cast<size_t>(m.rows * m.cols) * size_of(m.dtype);
    for (size_t i = 0; i < count; i += 8) {
      const uint64_t word = random.bits();
      std::memcpy(m.buffer.data() + i, &word, std::min<size_t>(8, count - i));
    }
    return;
  }
  fill_with(m, [&] { return s * (2 * random.unit() - 1); });
}

void fill_positive(const Matrix& m, uint64_t seed, double scale) {
  Random random(seed);
  const float s = static_cast<float>(scale);
  fill_with(m, [&] { return s * (0.5f + 0.5f * random.unit()); });
}

double scale_for_depth(int64_t k) {
  return 1 / std::sqrt(static_cast<double>(std::max<int64_t>(k, 1)));
}

Matrix filled(int64_t rows, int64_t cols, DType dtype, uint64_t seed, double scale) {
  Matrix m(rows, cols, dtype);
  fill(m, seed, scale);
  return m;
}

Matrix finite_codes(int64_t rows, int64_t cols, DType type, uint64_t seed) {
  Matrix m = filled(rows, cols, DType::kU8, seed);
  m.dtype = type;
  const unsigned largest = type == DType::kE4M3 ? 0x7e : 0x7b;
  for (std::byte& b : std::span(m.buffer.data(), static_cast<size_t>(rows * cols))) {
    if ((std::to_integer<unsigned>(b) & 0x7f) > largest) b &= std::byte{0x3f};
  }
  return m;
}

MatrixView part_of(const MatrixView& m, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  if (m.data == nullptr) return m;
  const char* base = static_cast<const char*>(m.data);
  const int64_t at = (row * m.row_stride + col) * static_cast<int64_t>(size_of(m.dtype));
  return {base + at, m.dtype, rows, cols, m.row_stride};
}

VectorView part_of(const VectorView& v, int64_t begin, int64_t size) {
  if (v.data == nullptr) return v;
  const char* base = static_cast<const char*>(v.data);
  return {base + begin * static_cast<int64_t>(size_of(v.dtype)), v.dtype, size};
}

Matrix bias_columns(const Matrix& bias, int64_t col, int64_t cols, int64_t n, bool two_parts) {
  Matrix part(1, two_parts ? 2 * cols : cols, DType::kF32);
  const float* from = reinterpret_cast<const float*>(bias.buffer.data());
  float* to = reinterpret_cast<float*>(part.buffer.data());
  std::copy_n(from + col, cols, to);
  if (two_parts) std::copy_n(from + n + col, cols, to + cols);
  return part;
}

}  // namespace quern::bench
