#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "quern/context.h"
#include "quern/epilogue.h"
#include "quern/export.h"
#include "quern/int8_activations.h"
#include "quern/packed_weights.h"
#include "quern/span.h"
#include "quern/status.h"
#include "quern/tensor_view.h"

namespace quern {
inline namespace v0 {

/// C[M, n] = epilogue(A[M, k] * W^T), W signed 8 bit [n, k] with one scale per output channel.
/// The W8A8 sum is exact for every input (weights and activations full range, -128 included), so
/// its output is bitwise equal on every ISA level. Limits: k <= 2^24.
struct Int8GemmDesc {
  int64_t n = 0;
  int64_t k = 0;
  Int8Activations activations = Int8Activations::kDynamicS8;
  DType a = DType::kBF16;  ///< kBF16 or kF32 (kDynamicS8), kS8 (kS8), kBF16 (kBF16)
  DType c = DType::kBF16;  ///< kBF16 or kF32
  Epilogue epilogue;
  Invariance invariance = Invariance::kStrict;
};

/// Weights as checkpoints store them.
struct Int8Weights {
  MatrixView codes;  ///< kS8 [n, k]
  VectorView scale;  ///< [n] kF32, kBF16 or kF16 (converted exactly)
};

/// C may share memory with the residual only as the very same view (data and row_stride); with
/// every other operand, and with scratch, it must not overlap.
struct Int8GemmArgs {
  MatrixView a;        ///< [M, k]
  VectorView a_scale;  ///< kF32 [M]; only with Int8Activations::kS8
  const PackedWeights* weights = nullptr;
  MutableMatrixView c;  ///< [M, n]
  VectorView
      bias;  ///< kF32 [n] ([2 n], gate then up, with kSiluMul); only where desc.epilogue.bias
  MatrixView residual;  ///< [M, n] of C's dtype; may be C itself; only where desc.epilogue.residual
};

/// Immutable; may be shared and run from any number of threads at once (each with its own scratch).
class QUERN_API Int8Gemm {
 public:
  static Result<Int8Gemm> create(const Context& ctx, const Int8GemmDesc& desc);

  const Int8GemmDesc& desc() const noexcept;
  /// The level of the kernel family that create() chose, which may be below the context's; kNone
  /// without a plan. Not of every call: at kAmx up to 4 rows run avx512 kernels, W8A8 always and
  /// W8A16 under kFastest (quern/epilogue.h). explain() lists both; verbose lines name what ran.
  IsaLevel isa() const noexcept;
  Result<PackedWeights> pack(const Int8Weights& w) const;
  Result<PackedWeights> pack_gate_up(const Int8Weights& gate, const Int8Weights& up) const;
  size_t scratch_bytes(int64_t max_m) const noexcept;
  Status run(const Int8GemmArgs& args, Span<std::byte> scratch) const noexcept;
  std::string explain() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace v0
}  // namespace quern
