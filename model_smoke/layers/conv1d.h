#pragma once

#include <cstdint>
#include <vector>

#include "model_smoke/layers/exec.h"
#include "quern/tensor_view.h"

namespace quern::smoke {

/// The inputs a causal convolution still has to see: the last taps - 1 rows of u, oldest first,
/// each `stride` floats (channels rounded up to 16), zeros before the sequence began. Values are
/// exactly what the activation type holds.
struct ConvState {
  int64_t channels = 0;
  int64_t stride = 0;
  int64_t history = 0;  ///< taps - 1
  std::vector<float> rows;

  ConvState() = default;
  ConvState(int64_t channels_in, int64_t taps)
      : channels(channels_in), stride(round_up(channels_in, 16)), history(taps - 1) {
    reset();
  }
  void reset() { rows.assign(static_cast<size_t>(stride * history), 0.0f); }
};

/// Taps as the loop wants them: row j holds tap j of every channel, `stride` floats, zero padded.
/// Tap taps - 1 belongs to the current token.
struct ConvWeights {
  int64_t channels = 0;
  int64_t taps = 0;
  int64_t stride = 0;
  std::vector<float> rows;

  ConvWeights() = default;
  /// w: [channels, taps] as checkpoints store it (the middle axis of length 1 dropped).
  ConvWeights(const float* w, int64_t channels_in, int64_t taps_in);
};

/// y[t, c] = round(silu(sum_j w[c, j] * u[t - (taps - 1) + j, c])): depthwise, causal; what comes
/// before row 0 of u is in `state`, which afterwards holds the end of u. y must not overlap u.
void conv1d_silu(LayerExec& exec, MatrixView u, const ConvWeights& w, ConvState& state,
                 MutableMatrixView y);

/// The same operands in a struct, for whoever passes the op on.
struct ConvArgs {
  MatrixView u;
  const ConvWeights* w = nullptr;
  MutableMatrixView y;
};

namespace simd {

/// Channels in a work item: two cache lines of bf16, so that threads do not write the same line.
inline constexpr int64_t kConvBlock = 64;

/// Channels [first, first + count) of all rows, first a multiple of kConvBlock and count at most
/// that; `window` is scratch for taps * kConvBlock floats.
void conv1d_silu_block(MatrixView u, const ConvWeights& w, ConvState& state, MutableMatrixView y,
                       int64_t first, int64_t count, float* window);

}  // namespace simd
}  // namespace quern::smoke
