#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "quern/context.h"
#include "quern/epilogue.h"
#include "quern/export.h"
#include "quern/packed_weights.h"
#include "quern/span.h"
#include "quern/status.h"
#include "quern/tensor_view.h"

namespace quern {
inline namespace v0 {

/// C[M, n] = epilogue(A[M, k] * W^T), W[n, k] = code * scale, with 8-bit floating-point codes and
/// one scale for each block of block_n columns of C and block_k columns of K (W8A16). Codes decode
/// exactly, subnormals too, and multiply bf16 activations in f32; scales act on the f32 sum of the
/// block's columns of K, ascending: sum = fma(f32(block sum), scale, sum). DeepSeek-V3's
/// "weight_scale_inv" is such a scale, by which one multiplies despite its name (arXiv:2412.19437,
/// section 3.3). Limits: k <= 2^20.
struct Fp8GemmDesc {
  int64_t n = 0;
  int64_t k = 0;
  DType weights = DType::kE4M3;  ///< kE4M3 or kE5M2
  /// Of the grid of scales: at least 1, or -1 for all, as is a block of the whole side or more. The
  /// last blocks may be partial. 128 x 128 is DeepSeek's, 1 x -1 a scale for each output channel,
  /// -1 x -1 one for the whole matrix.
  int64_t block_n = 128;
  int64_t block_k = 128;
  DType c = DType::kBF16;  ///< kBF16 or kF32
  Epilogue epilogue;
  Invariance invariance = Invariance::kStrict;
};

/// Weights as checkpoints store them. No value is refused: NaNs and infinities are legal among
/// codes and scales, as are scales that are zero or negative. They stay in the columns of C whose
/// weights they are part of: a code in its own, a scale in those of its block.
struct Fp8Weights {
  /// [n, k] of desc.weights. Every code decodes exactly: in e4m3 0x7f and 0xff are NaN and there is
  /// no infinity; in e5m2 0x7c and 0xfc are infinities and 0x7d..0x7f, 0xfd..0xff NaN.
  MatrixView codes;
  /// kF32, kBF16 or kF16 (converted exactly) [ceil(n / block_n), ceil(k / block_k)]. Never
  /// optional: codes without a scale are an error.
  MatrixView scale;
};

/// C may share memory with the residual only as the very same view (data and row_stride); with
/// every other operand, and with scratch, it must not overlap.
struct Fp8GemmArgs {
  MatrixView a;  ///< kBF16 [M, k]
  const PackedWeights* weights = nullptr;
  MutableMatrixView c;  ///< [M, n]
  VectorView
      bias;  ///< kF32 [n] ([2 n], gate then up, with kSiluMul); only where desc.epilogue.bias
  MatrixView residual;  ///< [M, n] of C's dtype; may be C itself; only where desc.epilogue.residual
};

/// Immutable; may be shared and run from any number of threads at once (each with its own scratch).
class QUERN_API Fp8Gemm {
 public:
  static Result<Fp8Gemm> create(const Context& ctx, const Fp8GemmDesc& desc);

  const Fp8GemmDesc& desc() const noexcept;
  /// The level of the kernel family that create() chose, which may be below the context's; kNone
  /// without a plan. explain() lists all families that calls of some M use.
  IsaLevel isa() const noexcept;
  Result<PackedWeights> pack(const Fp8Weights& w) const;
  /// Each part has a grid of scales of its own.
  Result<PackedWeights> pack_gate_up(const Fp8Weights& gate, const Fp8Weights& up) const;
  size_t scratch_bytes(int64_t max_m) const noexcept;
  Status run(const Fp8GemmArgs& args, Span<std::byte> scratch) const noexcept;
  std::string explain() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace v0
}  // namespace quern
