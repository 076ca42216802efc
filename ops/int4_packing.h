#pragma once

#include <array>
#include <cstdint>

#include "jit/kernel.h"
#include "ops/context_impl.h"
#include "ops/packed_gemm.h"
#include "quern/dtype.h"
#include "quern/int4_weights.h"
#include "quern/packed_weights.h"
#include "quern/span.h"
#include "quern/status.h"
#include "quern/thread_pool.h"

namespace quern::inline v0 {

/// What a plan packs; fields as in Int4GemmDesc, checked.
struct Int4PackSpec {
  int64_t n = 0;
  int64_t k = 0;
  int64_t group = 128;
  Int4Zeros zeros = Int4Zeros::kSymmetric;
  DType scale = DType::kF16;
  bool act_order = false;
};

/// By Int4Storage. AWQ has none by words.
struct Int4PackKernels {
  std::array<jit::KernelHandle, 3> words;
  std::array<jit::KernelHandle, 3> depths;
};
/// All that any checkpoint needs. For create(): pack() then asks for nothing.
Result<Int4PackKernels> int4_pack_kernels(ContextImpl& ctx);

/// Shapes, types, what must be there and what must not, and that g_idx names groups which have
/// scales.
Status check_int4_weights(const Int4Weights& w, const Int4PackSpec& spec, WeightPart part) noexcept;

/// One matrix, or gate and up; checked one by one. Runs on the pool and reads the checkpoint once,
/// a few panels at a time; every byte of the result is written. An error where gate and up differ
/// in g_idx. May throw bad_alloc.
Result<PackedWeights> pack_int4(const Int4PackKernels& kernels, ThreadPool& pool,
                                const Int4PackSpec& spec, Span<const Int4Weights> parts,
                                const PackProgress& progress);

}  // namespace quern::inline v0
