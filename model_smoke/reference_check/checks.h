#pragma once

#include <vector>

#include "model_smoke/layers/attention.h"
#include "model_smoke/layers/conv1d.h"
#include "model_smoke/layers/delta_rule.h"
#include "model_smoke/layers/norm.h"
#include "model_smoke/layers/rope.h"
#include "model_smoke/linear.h"
#include "model_smoke/reference_check/comparison.h"
#include "quern/span.h"
#include "quern/thread_pool.h"

namespace quern::smoke {

// Each function computes an op once more, in double and as the formula reads, from the inputs that
// the op really had, and holds the op's output against it. The bounds hold for every order of
// summation and every use of fused multiply-adds; they are derived beside each function. What an op
// only copies must have the same bits. A state that an op changes is handed in as it was before.

Comparison check_embed(MatrixView table, Span<const int64_t> ids, MatrixView y);
Comparison check_rms_norm(const NormArgs& args);
Comparison check_gated_norm(const GatedNormArgs& args);
Comparison check_silu_mul(MatrixView gate, MatrixView up, MatrixView y);
Comparison check_scale_columns(MatrixView x, VectorView factors, MatrixView y);
/// The table is checked with it: angles come from its theta and first position.
Comparison check_rope(const RopeTable& table, HeadView before, HeadView after);
/// Rows [first_position, + k.rows) of the cache.
Comparison check_append_kv(HeadView k, HeadView v, const KvCache& cache, int64_t first_position);
Comparison check_attention(const AttentionArgs& args, const KvCache& cache);
Comparison check_conv(const ConvArgs& args, const ConvState& before);
Comparison check_conv_state(const ConvArgs& args, const ConvState& before, const ConvState& after);

struct GateComparison {
  Comparison g, beta;
};
GateComparison check_delta_gates(const DeltaGateArgs& args);

struct DeltaComparison {
  Comparison output, state;
};
DeltaComparison check_delta_rule(const DeltaRule& rule, const DeltaArgs& args,
                                 const DeltaState& before, const DeltaState& after);

/// Quantization of the activations included. `residual` is C as it was before the op.
Comparison check_linear(ThreadPool& pool, const LinearSource& source, MatrixView a,
                        MatrixView residual, MatrixView c);

}  // namespace quern::smoke
