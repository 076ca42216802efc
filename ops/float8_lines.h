#pragma once

#include <emmintrin.h>

#include <cstddef>
#include <cstdint>

namespace quern::inline v0 {

/// Lines of 8-bit floats (WeightLayout::kE4M3Vnni2N16): four depths of 16 columns, so that bytes
/// that are unpacked within lanes are pairs of depths.

constexpr int64_t kFloat8LineDepth = 4;

/// Where a line has the code of a column at a depth of four.
constexpr int64_t float8_place(int64_t column, int64_t depth) noexcept {
  return column / 4 * 16 + depth / 2 * 8 + column % 4 * 2 + depth % 2;
}

/// Four columns of four lines 64 bytes apart, from 16 depths of rows `step` apart: word 4 h + c of
/// line i is word 2 i + h of row c.
inline void float8_lines_from_columns(const std::byte* from, int64_t step, std::byte* to) noexcept {
  const auto load = [from, step](int64_t row) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + row * step));
  };
  const auto store = [to](int64_t line, __m128i value) noexcept {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 64 * line), value);
  };
  const __m128i r0 = load(0), r1 = load(1), r2 = load(2), r3 = load(3);
  const __m128i low01 = _mm_unpacklo_epi16(r0, r1), low23 = _mm_unpacklo_epi16(r2, r3);
  const __m128i high01 = _mm_unpackhi_epi16(r0, r1), high23 = _mm_unpackhi_epi16(r2, r3);
  store(0, _mm_unpacklo_epi32(low01, low23));
  store(1, _mm_unpackhi_epi32(low01, low23));
  store(2, _mm_unpacklo_epi32(high01, high23));
  store(3, _mm_unpackhi_epi32(high01, high23));
}

/// A line from 16 columns of four rows of [k, n], `step` apart.
inline void float8_line_from_depths(const std::byte* from, int64_t step, std::byte* to) noexcept {
  const auto load = [from, step](int64_t row) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + row * step));
  };
  const auto store = [to](int64_t lane, __m128i value) noexcept {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16 * lane), value);
  };
  const __m128i r0 = load(0), r1 = load(1), r2 = load(2), r3 = load(3);
  const __m128i low01 = _mm_unpacklo_epi8(r0, r1), low23 = _mm_unpacklo_epi8(r2, r3);
  const __m128i high01 = _mm_unpackhi_epi8(r0, r1), high23 = _mm_unpackhi_epi8(r2, r3);
  store(0, _mm_unpacklo_epi64(low01, low23));
  store(1, _mm_unpackhi_epi64(low01, low23));
  store(2, _mm_unpacklo_epi64(high01, high23));
  store(3, _mm_unpackhi_epi64(high01, high23));
}

}  // namespace quern::inline v0
