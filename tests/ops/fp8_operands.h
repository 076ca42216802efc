#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "reference/numeric.h"
#include "tests/ops/case_values.h"
#include "tests/ops/int4_operands.h"
#include "tests/support/fills.h"
#include "tests/support/rng.h"
#include "tests/support/test_matrix.h"

/// 8-bit floating-point weights of a test case, and the grid of their scales.
namespace quern::test {

inline double fp8_value(DType type, uint8_t code) {
  return type == DType::kE4M3 ? reference::e4m3_to_double(code)
                              : reference::f16_to_double(static_cast<uint16_t>(code << 8));
}

/// The code of `value`, which has one.
inline uint8_t fp8_code(DType type, double value) {
  for (int code = 0; code < 256; ++code) {
    if (fp8_value(type, static_cast<uint8_t>(code)) == value) return static_cast<uint8_t>(code);
  }
  ADD_FAILURE() << value << " has no code of " << to_string(type);
  return 0;
}

/// `limit`, at most 8, is that of Fill::kExact.
inline void fill_fp8(TestMatrix& codes, Rng& rng, Fill fill, int64_t limit) {
  const DType type = codes.dtype();
  // Zeros of both signs, subnormals and their neighbours, the largest.
  constexpr uint8_t kE4M3[] = {0x00, 0x80, 0x01, 0x81, 0x07, 0x08, 0x7e, 0xfe};
  constexpr uint8_t kE5M2[] = {0x00, 0x80, 0x01, 0x81, 0x03, 0x04, 0x7b, 0xfb};
  uint8_t integers[17];
  for (int i = 0; i < 17; ++i) integers[i] = fp8_code(type, i - 8);
  for (int64_t i = 0; i < codes.rows(); ++i) {
    for (int64_t j = 0; j < codes.cols(); ++j) {
      auto code = static_cast<uint8_t>(rng.next());
      if (fill == Fill::kExact) {
        code = integers[8 + rng.in(-limit, limit)];
      } else if (fill == Fill::kExtreme && !rng.one_in(4)) {
        code = type == DType::kE4M3 ? rng.pick(kE4M3) : rng.pick(kE5M2);
      }
      // Many NaNs and infinities would hide the rest.
      if (!std::isfinite(fp8_value(type, code))) code &= 0x3f;
      codes.set_bits(i, j, code);
    }
  }
  constexpr uint8_t kNotFinite[] = {0x7f, 0xff, 0x7c, 0xfc};  // e4m3: the last two are 384
  if (fill == Fill::kExtreme && rng.one_in(4) && codes.rows() * codes.cols() > 0) {
    codes.set_bits(rng.in(0, codes.rows() - 1), rng.in(0, codes.cols() - 1), rng.pick(kNotFinite));
  }
}

/// Scales of kExact are another power of two for every block, so that a misplaced one shows.
inline void fill_block_scales(TestMatrix& scale, Rng& rng, Fill fill) {
  if (fill != Fill::kExact) return fill_scales(scale, rng, fill);
  for (int64_t i = 0; i < scale.rows(); ++i) {
    for (int64_t j = 0; j < scale.cols(); ++j) {
      scale.set(i, j, std::ldexp(1.0, static_cast<int>((i + j) % 5) - 2));
    }
  }
}

/// 0: all of them.
inline int64_t blocks_of(int64_t size, int64_t block) {
  if (size == 0) return 0;
  return block == 0 ? 1 : (size + block - 1) / block;
}

/// A side of a block: those that occur, 1, all, and any.
inline int64_t draw_block_n(Rng& rng, int64_t n) {
  return rng.pick(std::initializer_list<int64_t>{0, 1, 16, 128, rng.in(1, n + 3)});
}

}  // namespace quern::test
