#include <cmath>
#include <cstdint>

#include "model_smoke/layers/norm.h"
#include "model_smoke/layers/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model_smoke/layers/norm_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which compiles the rest of this file once per target.
#include "hwy/highway.h"
#include "model_smoke/layers/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quern::smoke {
namespace HWY_NAMESPACE {

float InverseRms(const bfloat16* x, int64_t n, float eps) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < n; i += lanes) {
    const auto v = load_bf16_upto(x + i, n - i);
    sum = hn::MulAdd(v, v, sum);
  }
  return 1.0f / std::sqrt(sum_lanes(sum) / static_cast<float>(n) + eps);
}

void RmsNormRow(const bfloat16* x, const float* w, int64_t n, float eps, bfloat16* y) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto r = hn::Set(d, InverseRms(x, n, eps));
  for (int64_t i = 0; i < n; i += lanes) {
    const auto scaled = hn::Mul(load_bf16_upto(x + i, n - i), r);
    const auto factor = hn::Add(hn::Set(d, 1.0f), load_f32_upto(w + i, n - i));
    store_bf16_upto(hn::Mul(scaled, factor), y + i, n - i);
  }
}

void GatedRmsNormRow(const bfloat16* x, const bfloat16* z, const float* w, int64_t n, float eps,
                     bfloat16* y) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto r = hn::Set(d, InverseRms(x, n, eps));
  for (int64_t i = 0; i < n; i += lanes) {
    const auto normed = round_to_bf16(hn::Mul(load_bf16_upto(x + i, n - i), r));
    const auto weighted = hn::Mul(normed, load_f32_upto(w + i, n - i));
    const auto gate = silu(load_bf16_upto(z + i, n - i));
    store_bf16_upto(hn::Mul(weighted, gate), y + i, n - i);
  }
}

void SiluMulRow(const bfloat16* gate, const bfloat16* up, int64_t n, bfloat16* y) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) {
    const auto g = silu(load_bf16_upto(gate + i, n - i));
    store_bf16_upto(hn::Mul(g, load_bf16_upto(up + i, n - i)), y + i, n - i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace quern::smoke
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quern::smoke {

HWY_EXPORT(RmsNormRow);
HWY_EXPORT(GatedRmsNormRow);
HWY_EXPORT(SiluMulRow);

namespace simd {

void rms_norm_row(const bfloat16* x, const float* w, int64_t n, float eps, bfloat16* y) {
  HWY_DYNAMIC_DISPATCH(RmsNormRow)(x, w, n, eps, y);
}
void gated_rms_norm_row(const bfloat16* x, const bfloat16* z, const float* w, int64_t n, float eps,
                        bfloat16* y) {
  HWY_DYNAMIC_DISPATCH(GatedRmsNormRow)(x, z, w, n, eps, y);
}
void silu_mul_row(const bfloat16* gate, const bfloat16* up, int64_t n, bfloat16* y) {
  HWY_DYNAMIC_DISPATCH(SiluMulRow)(gate, up, n, y);
}

}  // namespace simd
}  // namespace quern::smoke
#endif  // HWY_ONCE
