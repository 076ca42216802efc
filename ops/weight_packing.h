#pragma once

#include "quern/bmm.h"
#include "quern/int8_gemm.h"
#include "quern/packed_weights.h"
#include "quern/span.h"
#include "quern/status.h"
#include "quern/tensor_view.h"
#include "quern/thread_pool.h"

namespace quern::inline v0 {

/// Row-major [n, k] to panels (quern/packed_weights.h). One matrix, or gate and up of the same
/// shape. The views have been checked. Runs on the pool; every byte of the result is written.
Result<PackedWeights> pack_bf16(ThreadPool& pool, Span<const MatrixView> parts);
Result<PackedWeights> pack_int8(ThreadPool& pool, Span<const Int8Weights> parts);
/// Every matrix of a batch, bf16, s8 or e4m3, stored either way round.
Result<PackedWeights> pack_batch(ThreadPool& pool, const BmmWeights& weights);

}  // namespace quern::inline v0
