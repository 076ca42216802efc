#include "model_smoke/layers/conv1d.h"

#include <algorithm>
#include <cmath>

namespace quern::smoke {
namespace {

template <typename T>
void conv1d_silu_channel(MatrixView u, const ConvWeights& w, ConvState& state, MutableMatrixView y,
                         int64_t c) {
  const T* in = static_cast<const T*>(u.data) + c;
  T* out = static_cast<T*>(y.data) + c;
  const int64_t history = state.history;
  // Row t of the sequence, where the rows before 0 are the state's.
  const auto input = [&](int64_t t) {
    return t >= 0 ? to_float(in[t * u.row_stride])
                  : state.rows[static_cast<size_t>((history + t) * state.stride + c)];
  };
  for (int64_t t = 0; t < u.rows; ++t) {
    float sum = 0.0f;
    for (int64_t j = 0; j < w.taps; ++j) {
      sum += w.rows[static_cast<size_t>(j * w.stride + c)] * input(t - history + j);
    }
    out[t * y.row_stride] = from_float<T>(sum / (1.0f + std::exp(-sum)));
  }
  // Oldest first: row i of the new state reads an old row at or behind i, so this order is safe.
  for (int64_t i = 0; i < history; ++i) {
    state.rows[static_cast<size_t>(i * state.stride + c)] = input(u.rows - history + i);
  }
}

}  // namespace

ConvWeights::ConvWeights(const float* w, int64_t channels_in, int64_t taps_in)
    : channels(channels_in), taps(taps_in), stride(round_up(channels_in, 16)) {
  rows.assign(static_cast<size_t>(stride * taps), 0.0f);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t j = 0; j < taps; ++j) {
      rows[static_cast<size_t>(j * stride + c)] = w[c * taps + j];
    }
  }
}

void conv1d_silu(LayerExec& exec, MatrixView u, const ConvWeights& w, ConvState& state,
                 MutableMatrixView y) {
  require(u.cols == w.channels && y.cols == u.cols && y.rows == u.rows && u.dtype == y.dtype &&
              state.channels == w.channels && state.history == w.taps - 1,
          "conv1d_silu: shapes or types differ");
  if (exec.impl() == LayerImpl::kSimd && u.dtype == DType::kBF16) {
    constexpr int64_t kBlock = simd::kConvBlock;
    const int64_t blocks = (w.channels + kBlock - 1) / kBlock;
    exec.for_each(blocks, static_cast<size_t>(w.taps * kBlock), [&](int64_t b, float* window) {
      const int64_t first = b * kBlock;
      simd::conv1d_silu_block(u, w, state, y, first, std::min(kBlock, w.channels - first), window);
    });
    return;
  }
  with_element_type(u.dtype, [&]<typename T>(T) {
    exec.for_each(w.channels, 0,
                  [&](int64_t c, float*) { conv1d_silu_channel<T>(u, w, state, y, c); });
  });
}

}  // namespace quern::smoke
