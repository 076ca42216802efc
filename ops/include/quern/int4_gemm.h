#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "quern/context.h"
#include "quern/epilogue.h"
#include "quern/export.h"
#include "quern/int4_weights.h"
#include "quern/packed_weights.h"
#include "quern/span.h"
#include "quern/status.h"
#include "quern/tensor_view.h"

namespace quern {
inline namespace v0 {

/// What multiplies the int4 weights.
enum class Int4Activations : uint8_t {
  kBF16 = 0,       ///< W4A16: A is bf16 and multiplies the exactly decoded weights in f32
  kDynamicS8 = 1,  ///< W4A8: A is quantized per row inside (see quantize_rows.h)
};

/// C[M, n] = epilogue(A[M, k] * W^T), W[n, k] = (q - z) * s with 4-bit codes q and a scale and a
/// zero point for each column and each `group` columns of K. Scales act on the f32 sum of a group,
/// groups ascending: sum = fma(f32(group sum), s, sum). W4A8: the group sums are exact integers, so
/// the output is bitwise equal on every ISA level; the row's scale comes last. Limits: k <= 2^20.
struct Int4GemmDesc {
  int64_t n = 0;
  int64_t k = 0;
  /// Columns of K that share a scale: 1 or more, not necessarily a divisor of k; -1: all of them.
  /// Packed groups are padded to a multiple of 8, so that groups of 1 take eight times the memory.
  int64_t group = 128;
  Int4Zeros zeros = Int4Zeros::kSymmetric;
  DType scale = DType::kF16;  ///< kF16, kBF16 or kF32: kept as they are, read exactly
  /// The weights come with g_idx. Columns of K are then sorted by group when they are packed, and
  /// activations are gathered in the same order.
  bool act_order = false;
  Int4Activations activations = Int4Activations::kBF16;
  DType c = DType::kBF16;  ///< kBF16 or kF32
  Epilogue epilogue;
  Invariance invariance = Invariance::kStrict;
};

/// C may share memory with the residual only as the very same view (data and row_stride); with
/// every other operand, and with scratch, it must not overlap.
struct Int4GemmArgs {
  MatrixView a;  ///< kBF16 [M, k]
  const PackedWeights* weights = nullptr;
  MutableMatrixView c;  ///< [M, n]
  VectorView
      bias;  ///< kF32 [n] ([2 n], gate then up, with kSiluMul); only where desc.epilogue.bias
  MatrixView residual;  ///< [M, n] of C's dtype; may be C itself; only where desc.epilogue.residual
};

/// Immutable; may be shared and run from any number of threads at once (each with its own scratch).
class QUERN_API Int4Gemm {
 public:
  static Result<Int4Gemm> create(const Context& ctx, const Int4GemmDesc& desc);

  const Int4GemmDesc& desc() const noexcept;
  /// As Int8Gemm::isa(): at kAmx up to 8 rows of W4A8 and 2 of W4A16 run avx512 kernels, with the
  /// bits of the others.
  IsaLevel isa() const noexcept;
  /// Packed weights serve W4A16 and W4A8 plans alike: neither `activations` nor `c` is in them.
  Result<PackedWeights> pack(const Int4Weights& w, const PackProgress& progress = {}) const;
  /// With act_order both have the same g_idx.
  Result<PackedWeights> pack_gate_up(const Int4Weights& gate, const Int4Weights& up,
                                     const PackProgress& progress = {}) const;
  size_t scratch_bytes(int64_t max_m) const noexcept;
  Status run(const Int4GemmArgs& args, Span<std::byte> scratch) const noexcept;
  std::string explain() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace v0
}  // namespace quern
