#pragma once

#include <cstdint>

#include "jit/kernel.h"
#include "ops/context_impl.h"
#include "ops/packed_gemm.h"
#include "ops/packed_weights_builder.h"
#include "quern/fp4_weights.h"
#include "quern/packed_weights.h"
#include "quern/span.h"
#include "quern/status.h"
#include "quern/thread_pool.h"

namespace quern::inline v0 {

/// What a plan packs; fields as in Fp4GemmDesc, checked.
struct Fp4PackSpec {
  int64_t n = 0;
  int64_t k = 0;
  Fp4Format format = Fp4Format::kNvfp4;

  int64_t block() const noexcept { return format == Fp4Format::kNvfp4 ? kNvfp4Block : kMxfp4Block; }
};

WeightLayout fp4_layout(Fp4Format format, bool gate_up) noexcept;

/// Brings codes into lines. For create(): pack() then asks for nothing.
Result<jit::KernelHandle> fp4_pack_kernel(ContextImpl& ctx);

/// Shapes, types, that no scale of a block is NaN and that the global one is finite and positive.
Status check_fp4_weights(const Fp4Weights& w, const Fp4PackSpec& spec, WeightPart part) noexcept;

/// One matrix, or gate and up; checked one by one. Runs on the pool; every byte of the result is
/// written.
Result<PackedWeights> pack_fp4(const jit::Kernel& kernel, ThreadPool& pool, const Fp4PackSpec& spec,
                               Span<const Fp4Weights> parts);

}  // namespace quern::inline v0
