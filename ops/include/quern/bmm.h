#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "quern/bmm_operand.h"
#include "quern/context.h"
#include "quern/epilogue.h"
#include "quern/export.h"
#include "quern/packed_weights.h"
#include "quern/span.h"
#include "quern/status.h"
#include "quern/tensor_view.h"

namespace quern {
inline namespace v0 {

/// Batched GEMM: C[b] = A[b] * B[b] for every b in [0, batch), A[b] bf16 [M, k], B[b] [k, n],
/// C[b] [M, n]. What multi-head latent attention does to absorb kv_b_proj's weights into the query
/// and to undo it on the output (DeepSeek-V2, arXiv:2405.04434, section 2.1), and what attention
/// itself is made of.
///
/// Numbers are those of bf16_gemm, and of int8_gemm with bf16 activations where B is s8 or e4m3:
/// f32 accumulation in one chain per element with K ascending (level amx: of sums over 32 depths),
/// codes decoded exactly, their scale applied to the f32 sum, one rounding to C's type. With
/// kStrict a row of C has the same bits whatever M, batch, strides, threads and B's form (packed or
/// plain) are. bf16 subnormal inputs count as zero (the instruction's rule).
///
/// The same matrices go to the same threads in every call with this batch, n and pool. Where all
/// products share B they are one product of batch * M rows, if all rows of A are one step apart and
/// those of C too (dense [batch, M, k], or [M, batch, k]: the same of the two) and there is scratch
/// for batch * M rows.
struct BmmDesc {
  int64_t n = 0;  ///< columns of each C, 0..2^48
  int64_t k = 0;  ///< depth, 0..2^40; 0 gives zeros
  BmmOperand b = BmmOperand::kBF16;
  DType c = DType::kBF16;  ///< kBF16 or kF32
  /// Whether the bits of a row may depend on M; they never do on batch.
  Invariance invariance = Invariance::kStrict;
};

/// How the matrices that pack() reads are stored.
enum class BmmOrder : uint8_t {
  kNK = 0,  ///< [batch, n, k]: rows are columns of C, as checkpoints store linear layers
  kKN = 1,  ///< [batch, k, n]
};

/// B for pack().
struct BmmWeights {
  BatchView values;  ///< kBF16, kS8 or kE4M3, as desc.b says
  /// kF32, kBF16 or kF16 (converted exactly), for s8 and e4m3 and for nothing else: [batch, n], one
  /// for each column of C, or [batch, 1], one for each matrix. May be empty where there is no
  /// column (batch or n 0). Packed weights have at most 2^48 bytes; more is kTooLarge.
  MatrixView scale;
  BmmOrder order = BmmOrder::kNK;
};

/// The batch of the call is c.batch; 0 is legal. A and a plain B have as many matrices, which may
/// be one and the same (batch_stride 0). C must not overlap itself nor anything else. Batch and M
/// are at most 2^48, and so are the elements from the first of an operand to its last, gaps
/// included; more is kTooLarge.
struct BmmArgs {
  BatchView a;  ///< kBF16 [batch, M, k]
  /// For packed B: from pack() of a plan with the same n, k and b; of c.batch matrices or of one
  /// that all products share. With c.batch 0 they may be of any batch. Null for a plain B.
  const PackedWeights* weights = nullptr;
  BatchView b;  ///< for a plain B: kBF16 [batch, n, k] or [batch, k, n]. Empty for a packed one.
  MutableBatchView c;  ///< [batch, M, n]
};

/// Immutable; may be shared and run from any number of threads at once (each with its own scratch).
class QUERN_API Bmm {
 public:
  /// Picks the kernel family and generates every kernel the plan can need.
  static Result<Bmm> create(const Context& ctx, const BmmDesc& desc);

  const BmmDesc& desc() const noexcept;
  /// The level of the kernel family that create() chose, which may be below the context's; kNone
  /// without a plan. Not of every call under kFastest: at kAmx up to 4 rows run avx512 kernels then
  /// (quern/epilogue.h).
  IsaLevel isa() const noexcept;
  /// kInvalidArgument for a plan with a plain B, which has nothing to pack.
  Result<PackedWeights> pack(const BmmWeights& weights) const;
  /// Scratch that run() needs for up to max_m rows and any batch; 0 is possible and then null is
  /// legal. It grows with the threads of the pool, not with the batch.
  size_t scratch_bytes(int64_t max_m) const noexcept;
  /// One parallel region without a barrier. No allocation, no lock, no environment.
  Status run(const BmmArgs& args, Span<std::byte> scratch) const noexcept;
  /// Kernel, blocking, and every candidate that was refused with the reason.
  std::string explain() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace v0
}  // namespace quern
