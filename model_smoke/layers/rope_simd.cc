#include "model_smoke/layers/rope.h"
#include "model_smoke/layers/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model_smoke/layers/rope_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which compiles the rest of this file once per target.
#include "hwy/highway.h"
#include "model_smoke/layers/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quern::smoke {
namespace HWY_NAMESPACE {

void RopeRow(const float* cos, const float* sin, int64_t pairs, bfloat16* x) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < pairs; j += lanes) {
    const int64_t left = pairs - j;
    const auto c = load_f32_upto(cos + j, left);
    const auto s = load_f32_upto(sin + j, left);
    const auto first = load_bf16_upto(x + j, left);
    const auto second = load_bf16_upto(x + pairs + j, left);
    store_bf16_upto(hn::NegMulAdd(second, s, hn::Mul(first, c)), x + j, left);
    store_bf16_upto(hn::MulAdd(first, s, hn::Mul(second, c)), x + pairs + j, left);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace quern::smoke
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quern::smoke {

HWY_EXPORT(RopeRow);

namespace simd {

void rope_row(const float* cos, const float* sin, int64_t pairs, bfloat16* x) {
  HWY_DYNAMIC_DISPATCH(RopeRow)(cos, sin, pairs, x);
}

}  // namespace simd
}  // namespace quern::smoke
#endif  // HWY_ONCE
