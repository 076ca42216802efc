#pragma once

#include <cstdint>
#include <limits>

#include "tests/support/rng.h"
#include "tests/support/test_matrix.h"

namespace quern::test {

enum class Fill : uint8_t {
  kExact,    ///< small integers: every sum is exact in f32, one answer, compared bit for bit
  kRandom,   ///< full range for integers, several binades for floats
  kExtreme,  ///< drawn from the tables below
};
const char* to_string(Fill fill);

/// reliability.md 5.1. Full range on purpose: -128 and 127 included (bug_log I05).
inline constexpr int8_t kExtremeS8[] = {-128, -127, -1, 0, 1, 127};

/// bf16 codes: zeros, smallest and largest subnormal, smallest normal, ties of rounding (1 + 2^-7
/// times itself), one, large. No infinity or NaN: tests plant those where they want them.
inline constexpr uint16_t kExtremeBF16[] = {0x0000, 0x8000, 0x0001, 0x807f, 0x0080, 0x8080, 0x3f80,
                                            0xbf80, 0x3f81, 0xbf81, 0x3f7f, 0x4300, 0xc2ff, 0x5f80};

/// f32 codes: as above; 1 + 2^-8 and 1 + 3 * 2^-8 lie half way between two bf16 numbers.
inline constexpr uint32_t kExtremeF32[] = {0x00000000, 0x80000000, 0x00000001, 0x807fffff,
                                           0x00800000, 0x3f800000, 0xbf800000, 0x3f808000,
                                           0x3f818000, 0x3f800001, 0x437f0000, 0xdf800000};

/// Scales: signed zeros, powers of two, one that no power of two divides, negative, smallest
/// normal.
inline constexpr float kExtremeScale[] = {0.0f,  -0.0f,    1.0f,      0.5f,
                                          -2.0f, 1.0f / 3, 0x1p-126f, 3e4f};

/// Values that must stay where they are (containment tests).
inline constexpr float kNonFinite[] = {std::numeric_limits<float>::quiet_NaN(),
                                       std::numeric_limits<float>::infinity(),
                                       -std::numeric_limits<float>::infinity()};

/// Integers in [-limit, limit].
void fill_integers(TestMatrix& m, Rng& rng, int64_t limit);
/// s8: the full range. Floats: unit() * 2^e, e uniform in [-spread, spread] for each element.
void fill_random(TestMatrix& m, Rng& rng, int spread = 3);
/// s8, bf16, f32: from the tables, one element in four random so that sums do not degenerate.
void fill_extreme(TestMatrix& m, Rng& rng);
/// Scales (f32, bf16 or f16): powers of two (kExact), positive values around 2^-6 (kRandom), or
/// kExtremeScale.
void fill_scales(TestMatrix& m, Rng& rng, Fill fill);

}  // namespace quern::test
