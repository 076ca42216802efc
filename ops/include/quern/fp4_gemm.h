#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "quern/context.h"
#include "quern/epilogue.h"
#include "quern/export.h"
#include "quern/fp4_weights.h"
#include "quern/packed_weights.h"
#include "quern/span.h"
#include "quern/status.h"
#include "quern/tensor_view.h"

namespace quern {
inline namespace v0 {

/// C[M, n] = epilogue(A[M, k] * W^T) with e2m1 codes and a scale for each column and each 16
/// (NVFP4) or 32 (MXFP4) columns of K; activations stay bf16 (W4A16).
///   kNvfp4: W[n, k] = (code * block scale) * global. The product in brackets is exact in bf16 and
///           multiplies A in one chain of f32 sums over all of K, as bf16_gemm does; the global
///           scale acts on the sum, before the bias. A weight of -0 counts as 0: seen only in the
///           sign of a sum that underflowed.
///   kMxfp4: W[n, k] = code * 2^(s - 127). Scales act on the f32 sum of the block:
///           sum = fma(f32(block sum), scale, sum), blocks ascending.
/// Limits: k <= 2^20.
struct Fp4GemmDesc {
  int64_t n = 0;
  int64_t k = 0;
  Fp4Format format = Fp4Format::kNvfp4;
  DType c = DType::kBF16;  ///< kBF16 or kF32
  Epilogue epilogue;
  Invariance invariance = Invariance::kStrict;
};

/// C may share memory with the residual only as the very same view (data and row_stride); with
/// every other operand, and with scratch, it must not overlap.
struct Fp4GemmArgs {
  MatrixView a;  ///< kBF16 [M, k]
  const PackedWeights* weights = nullptr;
  MutableMatrixView c;  ///< [M, n]
  VectorView
      bias;  ///< kF32 [n] ([2 n], gate then up, with kSiluMul); only where desc.epilogue.bias
  MatrixView residual;  ///< [M, n] of C's dtype; may be C itself; only where desc.epilogue.residual
};

/// Immutable; may be shared and run from any number of threads at once (each with its own scratch).
class QUERN_API Fp4Gemm {
 public:
  static Result<Fp4Gemm> create(const Context& ctx, const Fp4GemmDesc& desc);

  const Fp4GemmDesc& desc() const noexcept;
  /// The level of the kernel family that create() chose, which may be below the context's; kNone
  /// without a plan. explain() lists all families that calls of some M use.
  IsaLevel isa() const noexcept;
  Result<PackedWeights> pack(const Fp4Weights& w) const;
  /// Each part keeps its own global scale.
  Result<PackedWeights> pack_gate_up(const Fp4Weights& gate, const Fp4Weights& up) const;
  size_t scratch_bytes(int64_t max_m) const noexcept;
  Status run(const Fp4GemmArgs& args, Span<std::byte> scratch) const noexcept;
  std::string explain() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace v0
}  // namespace quern
