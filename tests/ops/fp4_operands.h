#pragma once

#include <cstdint>

#include "quern/fp4_gemm.h"
#include "tests/ops/case_values.h"
#include "tests/support/rng.h"
#include "tests/support/test_matrix.h"

/// The weights of an fp4 test case as checkpoints store them, between guard pages.
namespace quern::test {

/// OCP Microscaling Formats 1.0, table 5.
inline constexpr double kE2M1Values[16] = {0,    0.5,  1,  1.5,  2,  3,  4,  6,
                                           -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
/// Of any byte but the two NaNs (OFP8 specification 1.0).
double e4m3_value(uint8_t byte);
/// Of any byte but NaN: a power of two.
double e8m0_value(uint8_t byte);

class Fp4Operand {
 public:
  Fp4Operand() = default;
  /// `limit` is that of Fill::kExact: the largest |code * block scale|.
  Fp4Operand(const Fp4GemmDesc& desc, Fp4Global global_is, Fill fill, int64_t limit, Rng& rng,
             int64_t pad, Placements& places);

  Fp4Weights weights() const;
  void protect();
  double scale_at(int64_t n, int64_t k) const;
  /// code * block scale.
  double value(int64_t n, int64_t k) const;
  int code(int64_t n, int64_t k) const;
  void set_code(int64_t n, int64_t k, int code);

  TestMatrix codes, scale, global;

 private:
  int64_t block() const { return scale.dtype() == DType::kE8M0 ? 32 : 16; }

  Fp4Global global_is_ = Fp4Global::kMultiplier;
};

}  // namespace quern::test
