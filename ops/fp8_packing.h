#pragma once

#include <cstdint>

#include "ops/group_layout.h"
#include "ops/packed_gemm.h"
#include "quern/dtype.h"
#include "quern/fp8_gemm.h"
#include "quern/packed_weights.h"
#include "quern/span.h"
#include "quern/status.h"
#include "quern/thread_pool.h"

namespace quern::inline v0 {

/// What a plan packs; fields as in Fp8GemmDesc, checked.
struct Fp8PackSpec {
  int64_t n = 0;
  int64_t k = 0;
  DType weights = DType::kE4M3;
  int64_t block_n = 128;
  int64_t block_k = 128;

  GroupLayout groups() const noexcept { return GroupLayout(k, block_k); }
};

WeightLayout fp8_layout(DType weights, bool gate_up) noexcept;

/// Shapes and types.
Status check_fp8_weights(const Fp8Weights& w, const Fp8PackSpec& spec, WeightPart part) noexcept;

/// One matrix, or gate and up; checked one by one. Runs on the pool; every byte of the result is
/// written. May throw bad_alloc.
Result<PackedWeights> pack_fp8(ThreadPool& pool, const Fp8PackSpec& spec,
                               Span<const Fp8Weights> parts);

}  // namespace quern::inline v0
