#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "jit/gemm_args.h"
#include "tests/jit/kernel_fixture.h"

namespace quern::jit {

// A block of C for one call of a GEMM micro-kernel, computed by triple loops over small integers,
// where every order of addition gives the same answer, so that the comparison is exact.

constexpr float kCanary = -7777.0f;

/// A block with everything a kernel can be given. Packed by the definition of the layouts.
struct Block {
  int mr, columns, k;     // columns: packed columns
  std::vector<int> a, w;  // [mr][k], [columns][k]
  std::vector<float> row_scale, col_scale, bias, residual;
  std::vector<int32_t> row_sum;
  int pad_lines = 1;  ///< depth is padded to so many lines of a panel: 16 for AMX

  Block(int rows, int cols, int depth, Numbers& numbers)
      : mr(rows),
        columns(cols),
        k(depth),
        a(static_cast<size_t>(rows * depth)),
        w(static_cast<size_t>(cols * depth)),
        row_scale(static_cast<size_t>(rows)),
        col_scale(static_cast<size_t>(cols)),
        bias(static_cast<size_t>(cols)),
        residual(static_cast<size_t>(rows * cols)),
        row_sum(static_cast<size_t>(rows)) {
    for (int& x : a) x = numbers.s8();
    for (int& x : w) x = numbers.s8();
    for (float& x : row_scale) x = 0.25f * static_cast<float>(1 << (numbers.next() % 3));
    for (float& x : col_scale) x = 0.5f * static_cast<float>(1 << (numbers.next() % 3));
    for (float& x : bias) x = numbers.small();
    for (float& x : residual) x = numbers.small();
    sum_rows();
  }
  void sum_rows() {
    for (int m = 0; m < mr; ++m) {
      int64_t sum = 0;
      for (int i = 0; i < k; ++i) sum += a[static_cast<size_t>(m * k + i)];
      row_sum[static_cast<size_t>(m)] = static_cast<int32_t>(sum);
    }
  }
  int64_t dot(int m, int c) const {
    int64_t sum = 0;
    for (int i = 0; i < k; ++i) {
      sum += int64_t{a[static_cast<size_t>(m * k + i)]} * w[static_cast<size_t>(c * k + i)];
    }
    return sum;
  }
  int padded_k() const { return padded_to(4 * pad_lines); }
  int padded_to(int step) const { return (k + step - 1) / step * step; }

  std::vector<int8_t> a_s8() const {
    std::vector<int8_t> out(static_cast<size_t>(mr * padded_k()));
    for (int m = 0; m < mr; ++m) {
      for (int i = 0; i < k; ++i) {
        out[static_cast<size_t>(m * padded_k() + i)] =
            static_cast<int8_t>(a[static_cast<size_t>(m * k + i)]);
      }
    }
    return out;
  }
  std::vector<uint16_t> a_bf16() const {
    std::vector<uint16_t> out;
    for (int x : a) out.push_back(bf16_bits(static_cast<float>(x)));
    return out;
  }
  std::vector<float> a_f32() const {
    std::vector<float> out(static_cast<size_t>(mr * padded_k()), 0.0f);
    for (int m = 0; m < mr; ++m) {
      for (int i = 0; i < k; ++i) {
        out[static_cast<size_t>(m * padded_k() + i)] =
            static_cast<float>(a[static_cast<size_t>(m * k + i)]);
      }
    }
    return out;
  }
  std::vector<uint8_t> b_u8() const {
    std::vector<uint8_t> out(static_cast<size_t>(columns * padded_k()), 128);
    for (int c = 0; c < columns; ++c) {
      for (int i = 0; i < k; ++i) {
        out[static_cast<size_t>(c / 16 * 16 * padded_k() + i / 4 * 64 + c % 16 * 4 + i % 4)] =
            static_cast<uint8_t>(w[static_cast<size_t>(c * k + i)] + 128);
      }
    }
    return out;
  }
  /// As integers that e4m3 holds.
  void use_small_weights() {
    for (int& x : w) x %= 17;
  }
  /// Byte 16 q + 8 h + 2 i + j of a line is column 4 q + i, depth 2 h + j.
  std::vector<uint8_t> b_e4m3() const {
    std::vector<uint8_t> out(static_cast<size_t>(columns * padded_k()), 0);
    for (int c = 0; c < columns; ++c) {
      for (int i = 0; i < k; ++i) {
        const int x = w[static_cast<size_t>(c * k + i)], magnitude = x < 0 ? -x : x;
        int exponent = 0;
        while (magnitude >> (exponent + 1) != 0) ++exponent;
        const int code =
            magnitude == 0 ? 0 : (exponent + 7) << 3 | ((magnitude << 3 >> exponent) & 7);
        const int byte = c % 16 / 4 * 16 + i % 4 / 2 * 8 + c % 4 * 2 + i % 2;
        out[static_cast<size_t>(c / 16 * 16 * padded_k() + i / 4 * 64 + byte)] =
            static_cast<uint8_t>(code | (x < 0 ? 0x80 : 0));
      }
    }
    return out;
  }
  std::vector<uint16_t> b_bf16() const {
    const int even_k = padded_to(2 * pad_lines);
    std::vector<uint16_t> out(static_cast<size_t>(columns * even_k), 0);
    for (int c = 0; c < columns; ++c) {
      for (int i = 0; i < k; ++i) {
        out[static_cast<size_t>(c / 16 * 16 * even_k + i / 2 * 32 + c % 16 * 2 + i % 2)] =
            bf16_bits(static_cast<float>(w[static_cast<size_t>(c * k + i)]));
      }
    }
    return out;
  }
};

/// C of one call, with canaries right of column n.
struct Output {
  int stride;
  std::vector<float> c;
  explicit Output(const Block& block)
      : stride(block.columns + 3), c(static_cast<size_t>(block.mr * stride), kCanary) {}
  void point(GemmArgs* args) {
    args->c = c.data();
    args->c_stride = stride * 4;
  }
  float at(int m, int n) const { return c[static_cast<size_t>(m * stride + n)]; }
};

inline void expect_block(const Block& block, const Output& out, int n, bool scaled_rows,
                         bool scaled_cols, const std::string& name) {
  for (int m = 0; m < block.mr; ++m) {
    for (int c = 0; c < out.stride; ++c) {
      float want = kCanary;
      if (c < n) {
        const float s_row = scaled_rows ? block.row_scale[static_cast<size_t>(m)] : 1.0f;
        const float s_col = scaled_cols ? block.col_scale[static_cast<size_t>(c)] : 1.0f;
        want = static_cast<float>(block.dot(m, c)) * (s_row * s_col) +
               block.bias[static_cast<size_t>(c)] +
               block.residual[static_cast<size_t>(m * block.columns + c)];
      }
      ASSERT_EQ(out.at(m, c), want)
          << name << " m " << m << " column " << c << " k " << block.k << " n " << n;
    }
  }
}

inline GemmArgs common_args(const Block& block, int n) {
  GemmArgs args;
  args.k = block.k;
  args.n = n;
  args.row_scale = block.row_scale.data();
  args.row_sum = block.row_sum.data();
  args.col_scale = block.col_scale.data();
  args.bias = block.bias.data();
  args.residual = block.residual.data();
  args.residual_stride = block.columns * 4;
  static uint32_t control[2];
  args.control = control;
  return args;
}

/// Prefetch of every kind that a kernel of `nr` panels can have.
inline std::vector<int> prefetches(int nr) {
  std::vector<int> all = {0, 1, 2, 4};
  if (nr > 1) all.push_back(4 * nr);
  return all;
}

/// Where to fetch from is a hint, so it may be anywhere; how the K loop is cut for it must not
/// change the sum. `steps`: whole steps of the call.
inline void hint(GemmArgs* args, int64_t steps, Numbers& numbers) {
  const void* const anywhere[] = {nullptr, args->b, reinterpret_cast<const void*>(~uint64_t{0})};
  args->prefetch = anywhere[numbers.next() % 3];
  args->prefetch_next = anywhere[numbers.next() % 3];
  args->prefetch_steps = static_cast<int64_t>(numbers.next() % (steps / 4 + 1)) * 4;
}

}  // namespace quern::jit
