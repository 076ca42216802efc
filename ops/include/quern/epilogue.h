#pragma once

#include <cstdint>

#include "quern/tensor_view.h"

namespace quern {
inline namespace v0 {

/// kSiluMul: the weights are two matrices, gate and up, and C = silu(gate) * up with
/// silu(x) = x / (1 + exp(-x)) in f32, exp within 2 ulp: silu is within 4 * 2^-23 relative, plus an
/// absolute 2^-121. The absolute part matters for gates below about -87, where exp(-|x|) is no
/// longer a normal f32 and |silu| itself falls under 2^-119: there the result may lose its digits
/// and below about -88.7 be zero. silu of an infinite gate is not part of the contract.
/// C has as many columns as each part.
enum class Activation : uint8_t { kNone = 0, kSiluMul = 1 };

/// What happens between the accumulator and the store; fixed order and part of the numeric
/// contract:
///   W8A8                          t = f32(acc) * (s_row * s_col)
///   W8A16, bmm of s8 and of e4m3  t = acc * s_col
///   NVFP4                         t = acc * global, or 1 / global rounded to f32, of a divisor
///   W4A8                          t = acc * s_row
///   bf16, W4A16, fp8, MXFP4       t = acc, which has the scales of groups or blocks already
///   then   t = t + bias[n];   t = activation(t);   t = t + residual[m, n];   C = round(t)
/// every step one f32 operation rounded to nearest even, the last one to the type of C. Rounding to
/// bf16 turns an f32 subnormal into the zero of its sign (the instruction's rule); f32 C keeps
/// subnormals.
struct Epilogue {
  bool bias = false;
  Activation activation = Activation::kNone;
  bool residual = false;
};

/// Whether a row's bits may depend on how many rows a call has ("Numeric contract" in
/// ops/README.md). At level amx avx512 kernels may stand in for a few rows, which they multiply
/// as fast as weights arrive. Plans with integer sums (W8A8, W4A8) always do so, because both give
/// the same bits, and so do MXFP4, and W4A16 and fp8 with most sizes of groups or blocks of K,
/// whose avx512 kernel adds as tiles do; for them, and for every plan below level amx, the two
/// values mean the same.
enum class Invariance : uint8_t {
  /// The bits of a row never depend on M. Plans with float sums use one family, chosen by create(),
  /// for every M, or two that give the same bits.
  kStrict = 0,
  /// The other plans with float sums (bf16_gemm, W8A16, bmm of any B, NVFP4, W4A16 and fp8 with the
  /// other groups) at level amx, too, leave up to 4 rows (of each matrix) to avx512, which adds in
  /// another order: there a row may have other bits than in a call of more rows.
  kFastest = 1,
};

}  // namespace v0
}  // namespace quern
