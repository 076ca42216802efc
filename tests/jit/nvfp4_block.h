#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/jit/grouped_block.h"
#include "tests/jit/kernel_fixture.h"

namespace quern::jit {

/// OCP Microscaling Formats 1.0, table 5.
constexpr float kE2M1Values[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                   -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

/// How a block scale is packed: its bits as bf16 lie 16 times so far below those of 512.
inline uint8_t packed_scale(float scale) {
  return static_cast<uint8_t>((bf16_bits(512.0f) - bf16_bits(scale)) / 16);
}

/// Every magnitude of e4m3 but zero: 2^-9 to 448 (OFP8 specification 1.0).
inline std::vector<float> e4m3_magnitudes() {
  std::vector<float> all;
  for (int byte = 1; byte < 0x7f; ++byte) {
    const int exponent = byte >> 3, mantissa = byte & 7;
    all.push_back(exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10));
  }
  return all;
}

/// NVFP4 weights of some panels, packed by the definition of the layout.
struct Nvfp4Block {
  static constexpr int kColumns = 16, kDepths = 16;  ///< of a panel, of a block
  int panels, k;
  std::vector<int> code;     ///< [columns][k]
  std::vector<float> scale;  ///< [columns][blocks]

  Nvfp4Block(int panel_count, int depth, Numbers& numbers)
      : panels(panel_count),
        k(depth),
        code(static_cast<size_t>(columns() * k)),
        scale(static_cast<size_t>(columns() * blocks())) {
    for (int& x : code) x = static_cast<int>(numbers.next() % 16);
  }
  /// Scales with which sums of products with small integers are exact in every order.
  void use_small_scales(Numbers& numbers) {
    for (float& x : scale) {
      x = 0.125f * static_cast<float>((8 + numbers.next() % 8) << numbers.next() % 3);
    }
  }
  void use_any_scales(Numbers& numbers) {
    const std::vector<float> all = e4m3_magnitudes();
    for (float& x : scale) x = all[numbers.next() % all.size()];
  }

  int columns() const { return panels * kColumns; }
  int padded() const { return (k + 31) / 32 * 32; }
  int blocks() const { return padded() / kDepths; }
  int panel_bytes() const { return padded() * 8; }
  float& scale_at(int column, int block) {
    return scale[static_cast<size_t>(column * blocks() + block)];
  }
  float value(int column, int depth) const {
    return kE2M1Values[code[static_cast<size_t>(column * k + depth)]] *
           scale[static_cast<size_t>(column * blocks() + depth / kDepths)];
  }

  std::vector<uint32_t> codes() const {
    std::vector<uint32_t> lines(static_cast<size_t>(panels * panel_bytes() / 4), 0);
    for (int c = 0; c < columns(); ++c) {
      for (int d = 0; d < k; ++d) {
        const int word = c / 16 * (panel_bytes() / 4) + d / 8 * 16 + c % 16;
        lines[static_cast<size_t>(word)] |=
            static_cast<uint32_t>(code[static_cast<size_t>(c * k + d)]) << 4 * kNibble[d % 8];
      }
    }
    return lines;
  }
  /// [panels][blocks][16], and between panels `gap` blocks of nothing.
  std::vector<uint8_t> scales(int gap) const {
    const int stride = (blocks() + gap) * 16;
    std::vector<uint8_t> all(static_cast<size_t>(panels * stride - gap * 16), 0x77);
    for (int c = 0; c < columns(); ++c) {
      for (int b = 0; b < blocks(); ++b) {
        all[static_cast<size_t>(c / 16 * stride + b * 16 + c % 16)] =
            packed_scale(scale[static_cast<size_t>(c * blocks() + b)]);
      }
    }
    return all;
  }
  /// What they decode to, as bf16_gemm reads it; -0 is +0.
  std::vector<uint16_t> pairs() const {
    std::vector<uint16_t> all(static_cast<size_t>(columns() * padded()), 0);
    for (int c = 0; c < columns(); ++c) {
      for (int d = 0; d < k; ++d) {
        all[static_cast<size_t>(c / 16 * 16 * padded() + d / 2 * 32 + c % 16 * 2 + d % 2)] =
            bf16_bits(value(c, d) + 0.0f);
      }
    }
    return all;
  }
};

}  // namespace quern::jit
