#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "jit/gemm_config.h"
#include "quern/dtype.h"
#include "tests/jit/float_code.h"
#include "tests/jit/kernel_fixture.h"

namespace quern::jit {

/// The code of depth r of eight is nibble kNibble[r] of its column's word (code_emitter.h).
constexpr int kNibble[8] = {0, 4, 2, 6, 1, 5, 3, 7};
/// And byte kQuad[r] of a quad, in s8 rows and in u8 codes, holds depth r of four.
constexpr int kQuad[4] = {0, 2, 1, 3};

/// Of a number that f16 holds, neither zero nor subnormal.
inline uint16_t f16_bits(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return static_cast<uint16_t>((u >> 16 & 0x8000) | ((u >> 23 & 0xff) - 127 + 15) << 10 |
                               (u >> 13 & 0x3ff));
}

/// A block of C whose weights have groups, in numbers so small that every order of additions, and
/// every fold, is exact. `padded` columns a group; the last group lacks its last `missing` ones.
/// `codes`: kU4, or floats without zero points.
struct GroupedBlock {
  int rows, panels, groups, padded;
  GroupConfig config;
  DType codes;
  std::vector<int> a, q;           ///< [rows][depth], [columns][depth]
  std::vector<float> scale, zero;  ///< [columns][groups]
  std::vector<float> row_scale, bias, residual;

  GroupedBlock(int m, int nr, int group_count, int group_depth, int missing, const GroupConfig& g,
               Numbers& numbers, DType code_type = DType::kU4)
      : rows(m), panels(nr), groups(group_count), padded(group_depth), config(g), codes(code_type) {
    a.resize(size(rows * depth()));
    q.resize(size(columns() * depth()));
    scale.resize(size(columns() * groups));
    zero.resize(size(columns() * groups), 8.0f);
    row_scale.resize(size(rows));
    bias.resize(size(columns()));
    residual.resize(size(rows * columns()));
    const auto below = [&numbers](int n) { return static_cast<int>(numbers.next() % size(n)); };
    for (int& x : a) x = g.a == DType::kS8 ? below(255) - 127 : below(17) - 8;
    for (int& x : q) x = small_code(numbers);
    for (float& x : scale) x = 0.25f * static_cast<float>(1 + below(7));
    for (float& x : zero) {
      if (g.zeros == Int4Zeros::kInteger) x = static_cast<float>(below(17));
      if (g.zeros == Int4Zeros::kF32) x = 0.5f * static_cast<float>(below(33) - 16);
    }
    for (float& x : row_scale) x = 0.25f * static_cast<float>(1 << below(3));
    for (float& x : bias) x = numbers.small();
    for (float& x : residual) x = numbers.small();
    for (int d = depth() - missing; d < depth(); ++d) {
      for (int row = 0; row < rows; ++row) a_at(row, d) = 0;
      for (int c = 0; c < columns(); ++c) q_at(c, d) = 0;
    }
  }

  /// Of floats those from 1/2 (e4m3), 1/4 (e5m2) to 8, and all of e2m1.
  int small_code(Numbers& numbers) const {
    const auto random = static_cast<int>(numbers.next() % 256);
    if (codes == DType::kE4M3) return (random & 0x80) | (6 * 8 + random % 32);
    if (codes == DType::kE5M2) return (random & 0x80) | (13 * 4 + random % 20);
    return random % 16;
  }
  bool floats() const { return codes != DType::kU4; }
  /// The number that is multiplied, but for a zero point.
  double number(int c, int d) const {
    return floats() ? float_code(codes, q_at(c, d)) : q_at(c, d);
  }

  static size_t size(int n) { return static_cast<size_t>(n); }
  int columns() const { return 16 * panels; }
  int depth() const { return groups * padded; }
  int& a_at(int m, int d) { return a[size(m * depth() + d)]; }
  int a_at(int m, int d) const { return a[size(m * depth() + d)]; }
  int& q_at(int c, int d) { return q[size(c * depth() + d)]; }
  int q_at(int c, int d) const { return q[size(c * depth() + d)]; }
  float zero_at(int c, int d) const { return zero[size(c * groups + d / padded)]; }
  int64_t row_sum(int m, int g) const {
    int64_t sum = 0;
    for (int d = g * padded; d < (g + 1) * padded; ++d) sum += a_at(m, d);
    return sum;
  }
  /// Before bias and residual.
  double value(int m, int c) const {
    double total = 0;
    for (int g = 0; g < groups; ++g) {
      double dot = 0;
      for (int d = g * padded; d < (g + 1) * padded; ++d) dot += a_at(m, d) * number(c, d);
      const double z = floats() ? 0 : zero[size(c * groups + g)];
      total += (dot - z * static_cast<double>(row_sum(m, g))) * scale[size(c * groups + g)];
    }
    return config.a == DType::kS8 ? total * row_scale[size(m)] : total;
  }

  // Operands as kernels read them.

  /// With `f32`: for FMAs.
  std::vector<std::byte> rows_bytes(bool f32) const {
    const size_t element = config.a == DType::kS8 ? 1 : f32 ? 4 : 2;
    std::vector<std::byte> out(a.size() * element);
    for (int m = 0; m < rows; ++m) {
      for (int d = 0; d < depth(); ++d) {
        const int place = config.a == DType::kS8 ? d / 4 * 4 + kQuad[d % 4] : d;
        std::byte* to = out.data() + size(m * depth() + place) * element;
        const auto x = static_cast<float>(a_at(m, d));
        const auto s8 = static_cast<int8_t>(a_at(m, d));
        const uint16_t bf16 = bf16_bits(x);
        const void* const from[] = {nullptr, &s8, &bf16, nullptr, &x};
        std::memcpy(to, from[element], element);
      }
    }
    return out;
  }
  /// [panel][depth / 8][16] words of eight 4-bit codes, or [panel][depth / 4] lines of 8-bit ones.
  std::vector<uint32_t> packed() const {
    if (codes == DType::kE4M3 || codes == DType::kE5M2) return packed_bytes();
    std::vector<uint32_t> out(q.size() / 8, 0);
    for (int c = 0; c < columns(); ++c) {
      for (int d = 0; d < depth(); ++d) {
        const int at = (c / 16 * (depth() / 8) + d / 8) * 16 + c % 16;
        out[size(at)] |= static_cast<uint32_t>(q_at(c, d)) << (4 * kNibble[d % 8]);
      }
    }
    return out;
  }
  /// Byte 16 L + 8 h + 2 i + j of a line is column 4 L + i, depth 2 h + j.
  std::vector<uint32_t> packed_bytes() const {
    std::vector<uint8_t> out(q.size());
    for (int c = 0; c < columns(); ++c) {
      for (int d = 0; d < depth(); ++d) {
        const int line = c / 16 * (depth() / 4) + d / 4;
        const int byte = c % 16 / 4 * 16 + d % 4 / 2 * 8 + c % 4 * 2 + d % 2;
        out[size(line * 64 + byte)] = static_cast<uint8_t>(q_at(c, d));
      }
    }
    std::vector<uint32_t> words(out.size() / 4);
    if (!words.empty()) std::memcpy(words.data(), out.data(), out.size());
    return words;
  }
  /// What is made of them for s8 rows: quads, of q or of q - z.
  std::vector<uint8_t> quads(bool subtracted) const {
    std::vector<uint8_t> out(q.size());
    for (int c = 0; c < columns(); ++c) {
      for (int d = 0; d < depth(); ++d) {
        const int z = subtracted ? static_cast<int>(zero_at(c, d)) : 0;
        const int line = c / 16 * (depth() / 4) + d / 4;
        out[size(line * 64 + c % 16 * 4 + kQuad[d % 4])] = static_cast<uint8_t>(q_at(c, d) - z);
      }
    }
    return out;
  }
  /// And for bf16 rows: pairs of q - z, z 0 where it is a float.
  std::vector<uint16_t> pairs() const {
    std::vector<uint16_t> out(q.size());
    for (int c = 0; c < columns(); ++c) {
      for (int d = 0; d < depth(); ++d) {
        const float z = floats() || config.zeros == Int4Zeros::kF32 ? 0.0f : zero_at(c, d);
        const int at = (c / 16 * (depth() / 2) + d / 2) * 32 + c % 16 * 2 + d % 2;
        out[size(at)] = bf16_bits(static_cast<float>(number(c, d)) - z);
      }
    }
    return out;
  }
  /// [panel][groups + gap][16]; what lies in the gap is not read.
  template <typename T, typename Convert>
  std::vector<T> by_panel(const std::vector<float>& values, int gap, const Convert& convert) const {
    std::vector<T> out(groups == 0 ? 0 : size((panels * (groups + gap) - gap) * 16), T{0x7f});
    for (int c = 0; c < columns(); ++c) {
      for (int g = 0; g < groups; ++g) {
        out[size((c / 16 * (groups + gap) + g) * 16 + c % 16)] =
            convert(values[size(c * groups + g)]);
      }
    }
    return out;
  }
  std::vector<std::byte> scales(int gap) const, zeros(int gap) const;
  std::vector<uint32_t> group_sums(int gap) const;
};

}  // namespace quern::jit

#include "tests/jit/grouped_block_operands.h"
