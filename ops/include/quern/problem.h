#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "quern/bmm_operand.h"
#include "quern/dtype.h"
#include "quern/epilogue.h"
#include "quern/export.h"
#include "quern/fp4_weights.h"
#include "quern/int4_weights.h"
#include "quern/int8_activations.h"
#include "quern/isa.h"
#include "quern/status.h"

namespace quern {
inline namespace v0 {

/// One problem, and the string that names it in benchmarks, tests, verbose lines and the tuning
/// database: any line can be pasted anywhere. Grammar: op, then `/key:value` in the order below,
/// fields at their default left out, except sizes: b (bmm), m, n (not
/// quantize_rows) and k are written even where they are 0. For example
///   int8_gemm/m:1/n:4096/k:4096/a:bf16/act:s8dyn/c:bf16/epi:bias+silu_mul/isa:avx512/thr:2/cold:1
///   int4_gemm/m:1/n:4096/k:4096/g:128/act:bf16/z:u4/s:bf16/order:1/isa:amx
///   fp8_gemm/m:1/n:4096/k:4096/bn:128/bk:128/w:e5m2/thr:2
///   fp4_gemm/m:1/n:4096/k:4096/w:mxfp4/thr:2
///   bmm/b:128/m:1/n:512/k:128/w:s8/isa:avx512/thr:2/cold:1
struct Problem {
  /// "quantize_rows", "int4_gemm", "fp8_gemm", "fp4_gemm", "int8_gemm", "bf16_gemm", "bmm"
  std::string op;
  int64_t batch = 0;       ///< b: (bmm only)
  int64_t m = 0;           ///< m:
  int64_t n = 0;           ///< n:
  int64_t k = 0;           ///< k:
  int64_t group = 0;       ///< g: (0, left out: all of K; of a plan also for K or more)
  int64_t block_n = 0;     ///< bn: (fp8_gemm only; 0, left out: all of N, as for g)
  int64_t block_k = 0;     ///< bk: (fp8_gemm only; 0, left out: all of K, as for g)
  DType a = DType::kBF16;  ///< a:
  /// act: s8dyn, bf16 (int4_gemm and int8_gemm), s8 (int8_gemm only)
  Int8Activations activations = Int8Activations::kDynamicS8;
  BmmOperand b = BmmOperand::kBF16;         ///< w: bf16, s8, nk, kn, e4m3 (bmm only)
  DType weights = DType::kE4M3;             ///< w: e4m3, e5m2 (fp8_gemm only)
  Fp4Format fp4 = Fp4Format::kNvfp4;        ///< w: nvfp4, mxfp4 (fp4_gemm only)
  Int4Zeros zeros = Int4Zeros::kSymmetric;  ///< z: sym, u4, f32 (int4_gemm only)
  DType scale = DType::kF16;                ///< s: f16, bf16, f32 (int4_gemm only)
  bool act_order = false;                   ///< order:1 (int4_gemm only)
  DType c = DType::kBF16;                   ///< c:
  Epilogue epilogue;                        ///< epi: bias+silu_mul+residual
  IsaLevel isa = IsaLevel::kNone;           ///< isa: (none: left out)
  int32_t threads = 0;                      ///< thr: (0: left out)
  bool cold = false;                        ///< cold:1
};

QUERN_API std::string to_string(const Problem& problem);
/// The inverse: parse(to_string(p)) == p for every p that a string can hold: op one of those,
/// numbers in [0, 2^62], threads >= 0, enum values that exist, and fields of other ops at their
/// default. (Any other p has a string too, which does not parse.) kInvalidArgument for an unknown
/// op, key or value, a key twice, a number out of [0, 2^62] or trailing text; value(0) is the byte
/// offset of the fault.
QUERN_API Result<Problem> parse_problem(std::string_view text);
QUERN_API bool operator==(const Problem& x, const Problem& y) noexcept;

}  // namespace v0
}  // namespace quern
