#pragma once

#include <cstdint>

#include "tests/support/amx_decode.h"
#include "tests/support/amx_tiles.h"

namespace quern::amx_emu {

/// The operands of one dot product instruction: C[m][n] += A[m][k] * B[k][n] over dwords, each of
/// which holds four int8 or two 16-bit floats. Only the sizes given are read or written; each
/// function works on whole rows of C and leaves junk in columns from `n` on.
struct DotOperands {
  Tile* c;
  const Tile* a;
  const Tile* b;
  int m, n, k;  ///< m <= 16 rows, n <= 16 dwords of a row, k <= 16 dwords summed
};

/// The two implementations. They give the same bits (NaNs: a NaN for a NaN, whose payload the
/// architecture leaves open where several meet) and read no MXCSR; the flags it collects and every
/// other bit of it are the caller's afterwards.
///
/// int8: products exact, sums modulo 2^32. bf16, fp16: two fp32 sums from +0 for even and odd
/// elements, k ascending, fused multiply-add; then c = c + (even + odd), two more roundings. Round
/// to nearest even; fp32 denormals (operands, sums and results) are zero, bf16 denormals too, fp16
/// denormals are not.
void dot_portable(Op op, const DotOperands& operands);

/// Only where has_avx2().
void dot_avx2(Op op, const DotOperands& operands);
bool has_avx2();  ///< AVX2, FMA and F16C, and the operating system saves their state

/// Which bytes count as signed.
constexpr bool signed_a(Op op) {
  return op == Op::kTdpbssd || op == Op::kTdpbsud;
}
constexpr bool signed_b(Op op) {
  return op == Op::kTdpbssd || op == Op::kTdpbusd;
}
constexpr bool is_int8_dot(Op op) {
  return op >= Op::kTdpbssd && op <= Op::kTdpbuud;
}

/// Sets MXCSR for its lifetime. The compiler does not order floating-point code against this, so
/// that such code must be in a function of its own that is not inlined.
class MxcsrGuard {
 public:
  explicit MxcsrGuard(uint32_t value) {
    __asm__ volatile("stmxcsr %0" : "=m"(saved_) : : "memory");
    __asm__ volatile("ldmxcsr %0" : : "m"(value) : "memory");
  }
  ~MxcsrGuard() { __asm__ volatile("ldmxcsr %0" : : "m"(saved_) : "memory"); }
  MxcsrGuard(const MxcsrGuard&) = delete;
  MxcsrGuard& operator=(const MxcsrGuard&) = delete;

 private:
  uint32_t saved_ = 0;
};
inline constexpr uint32_t kMxcsrDefault = 0x1f80;      ///< nearest even, denormals as they are
inline constexpr uint32_t kMxcsrFlushToZero = 0x9fc0;  ///< nearest even, FTZ and DAZ

}  // namespace quern::amx_emu
