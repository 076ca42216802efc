#include "model_smoke/layers/conv1d.h"
#include "model_smoke/layers/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model_smoke/layers/conv1d_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which compiles the rest of this file once per target.
#include "hwy/highway.h"
#include "model_smoke/layers/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quern::smoke {
namespace HWY_NAMESPACE {

/// `window` holds the last `taps` rows of the block, as a ring: row t of the sequence (the state's
/// rows come first, as t - history) lives in slot t % taps.
void ConvBlock(MatrixView u, const ConvWeights& w, ConvState& state, MutableMatrixView y,
               int64_t first, int64_t count, float* window) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t taps = w.taps;
  constexpr int64_t kRow = simd::kConvBlock;
  const int64_t padded = round_up(count, 16);
  const size_t row_bytes = static_cast<size_t>(padded) * sizeof(float);
  const bfloat16* in = static_cast<const bfloat16*>(u.data) + first;
  bfloat16* out = static_cast<bfloat16*>(y.data) + first;
  for (int64_t i = 0; i < state.history; ++i) {
    std::memcpy(window + i * kRow, state.rows.data() + i * state.stride + first, row_bytes);
  }
  for (int64_t t = 0; t < u.rows; ++t) {
    const int64_t newest = (t + state.history) % taps;
    widen_row(in + t * u.row_stride, count, padded, window + newest * kRow);
    for (int64_t c = 0; c < count; c += lanes) {
      auto sum = hn::Zero(d);
      for (int64_t j = 0; j < taps; ++j) {
        const float* row = window + (newest + 1 + j) % taps * kRow;
        const float* tap = w.rows.data() + j * w.stride + first;
        sum = hn::MulAdd(hn::LoadU(d, tap + c), hn::LoadU(d, row + c), sum);
      }
      store_bf16_upto(silu(sum), out + t * y.row_stride + c, count - c);
    }
  }
  for (int64_t i = 0; i < state.history; ++i) {
    const int64_t slot = (u.rows + i) % taps;
    std::memcpy(state.rows.data() + i * state.stride + first, window + slot * kRow, row_bytes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace quern::smoke
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quern::smoke {

HWY_EXPORT(ConvBlock);

namespace simd {

void conv1d_silu_block(MatrixView u, const ConvWeights& w, ConvState& state, MutableMatrixView y,
                       int64_t first, int64_t count, float* window) {
  HWY_DYNAMIC_DISPATCH(ConvBlock)(u, w, state, y, first, count, window);
}

}  // namespace simd
}  // namespace quern::smoke
#endif  // HWY_ONCE
