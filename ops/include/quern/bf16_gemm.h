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

/// C[M, n] = epilogue(A[M, k] * W^T), W stored [n, k] as checkpoints store it, f32 accumulation in
/// one chain per element with K ascending (level amx: of sums over 32 depths), so with kStrict a
/// row of C has the same bits whatever M, the thread count and the alignment are. bf16 subnormal
/// inputs count as zero (the instruction's rule).
struct Bf16GemmDesc {
  int64_t n = 0;           ///< columns of C, >= 0
  int64_t k = 0;           ///< >= 0; 0 gives the epilogue of zero
  DType c = DType::kBF16;  ///< kBF16 or kF32
  Epilogue epilogue;
  Invariance invariance = Invariance::kStrict;
};

/// C may share memory with the residual only as the very same view (data and row_stride); with
/// every other operand, and with scratch, it must not overlap.
struct Bf16GemmArgs {
  MatrixView a;  ///< [M, k] kBF16
  const PackedWeights* weights =
      nullptr;          ///< from pack() of a plan with the same n, k and activation
  MutableMatrixView c;  ///< [M, n]
  VectorView
      bias;  ///< kF32 [n] ([2 n], gate then up, with kSiluMul); only where desc.epilogue.bias
  MatrixView residual;  ///< [M, n] of C's dtype; may be C itself; only where desc.epilogue.residual
};

/// Immutable; may be shared and run from any number of threads at once (each with its own scratch).
class QUERN_API Bf16Gemm {
 public:
  /// Picks the kernel family and generates every kernel the plan can need.
  static Result<Bf16Gemm> create(const Context& ctx, const Bf16GemmDesc& desc);

  const Bf16GemmDesc& desc() const noexcept;
  /// The level of the kernel family that create() chose, which may be below the context's; kNone
  /// without a plan. Not of every call under kFastest: at kAmx up to 4 rows run avx512 kernels then
  /// (quern/epilogue.h).
  IsaLevel isa() const noexcept;
  /// W: kBF16 [n, k]. With kSiluMul use pack_gate_up.
  Result<PackedWeights> pack(MatrixView w) const;
  Result<PackedWeights> pack_gate_up(MatrixView gate, MatrixView up) const;
  /// Scratch that run() needs for up to max_m rows; 0 is possible and then null is legal.
  size_t scratch_bytes(int64_t max_m) const noexcept;
  /// No allocation, no lock, no environment.
  Status run(const Bf16GemmArgs& args, Span<std::byte> scratch) const noexcept;
  /// Kernel, blocking, and every candidate that was refused with the reason.
  std::string explain() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace v0
}  // namespace quern
