#include <algorithm>
#include <cmath>

#include "model_smoke/layers/attention.h"
#include "model_smoke/layers/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model_smoke/layers/attention_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which compiles the rest of this file once per target.
#include "hwy/highway.h"
#include "model_smoke/layers/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quern::smoke {
namespace HWY_NAMESPACE {

/// A vector of what a cache holds, exact.
HWY_INLINE VF32 load_kv(const bfloat16* p) {
  return load_bf16(p);
}
HWY_INLINE VF32 load_kv(const e4m3* p) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const hn::Rebind<uint8_t, F32> du8;
  uint8_t codes[16];
  std::memcpy(codes, p, hn::Lanes(d));
  return hn::GatherIndex(d, detail::kE4M3Values.data(), hn::PromoteTo(di, hn::LoadU(du8, codes)));
}

/// p[s] = scale * q k_s. Keys are padded with zeros to whole vectors, and so is q.
template <typename Kv>
void Scores(const float* q, const Kv* keys, int64_t stride, int64_t count, float scale, float* p) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t s = 0;
  for (; s + 4 <= count; s += 4) {  // four independent sums hide the latency of the products
    VF32 sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    for (int64_t i = 0; i < stride; i += lanes) {
      const auto x = hn::Load(d, q + i);
      for (int n = 0; n < 4; ++n) {
        sum[n] = hn::MulAdd(x, load_kv(keys + (s + n) * stride + i), sum[n]);
      }
    }
    for (int n = 0; n < 4; ++n) p[s + n] = scale * sum_lanes(sum[n]);
  }
  for (; s < count; ++s) {
    auto sum = hn::Zero(d);
    for (int64_t i = 0; i < stride; i += lanes) {
      sum = hn::MulAdd(hn::Load(d, q + i), load_kv(keys + s * stride + i), sum);
    }
    p[s] = scale * sum_lanes(sum);
  }
}

/// p = bf16(softmax(p)); p has room for whole vectors.
void Softmax(float* p, int64_t count) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  float largest = -INFINITY;
  for (int64_t s = 0; s < count; ++s) largest = std::max(largest, p[s]);
  for (int64_t s = count; s < round_up(count, lanes); ++s) p[s] = -INFINITY;
  auto total = hn::Zero(d);
  for (int64_t s = 0; s < count; s += lanes) {
    const auto x = hn::Sub(hn::Load(d, p + s), hn::Set(d, largest));
    // Exp knows nothing of NaN; a broken score must stay visible.
    const auto e = hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
    total = hn::Add(total, e);
    hn::Store(e, d, p + s);
  }
  const auto sum = hn::Set(d, sum_lanes(total));
  for (int64_t s = 0; s < count; s += lanes) {
    hn::Store(round_to_bf16(hn::Div(hn::Load(d, p + s), sum)), d, p + s);
  }
}

/// NV vectors of the output from element i on: sum_s p_s v_s, times scale and gate.
template <int NV, typename Kv>
void WeightedValues(const float* p, const Kv* values, int64_t stride, int64_t count, float scale,
                    const bfloat16* gate, bfloat16* out, int64_t left) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF32 sum[NV];
  for (int n = 0; n < NV; ++n) sum[n] = hn::Zero(d);
  for (int64_t s = 0; s < count; ++s) {
    const auto weight = hn::Set(d, p[s]);
    for (int n = 0; n < NV; ++n) {
      sum[n] = hn::MulAdd(weight, load_kv(values + s * stride + n * lanes), sum[n]);
    }
  }
  for (int n = 0; n < NV && n * lanes < left; ++n) {
    const int64_t rest = left - n * lanes;
    const auto g = logistic(load_bf16_upto(gate + n * lanes, rest));
    const auto scaled = hn::Mul(sum[n], hn::Set(d, scale));
    store_bf16_upto(hn::Mul(scaled, g), out + n * lanes, rest);
  }
}

template <typename Kv>
void AttentionRowOf(const AttentionArgs& a, const KvCache& cache, int64_t t, int64_t head,
                    float* scratch) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  const int64_t dim = a.q.dim, stride = cache.stride(), count = a.first_position + t + 1;
  const int64_t kv_head = head / (a.q.heads / cache.heads());
  float* q = scratch;
  float* p = scratch + stride;
  widen_row(a.q.at<bfloat16>(t, head), dim, stride, q);
  Scores(q, cache.keys<Kv>(kv_head), stride, count,
         cache.k_scale() / std::sqrt(static_cast<float>(dim)), p);
  Softmax(p, count);
  const Kv* values = cache.values<Kv>(kv_head);
  const float v_scale = cache.v_scale();
  const bfloat16* gate = a.gate.at<bfloat16>(t, head);
  bfloat16* out = a.out.at<bfloat16>(t, head);
  int64_t i = 0;
  for (; i + 4 * lanes <= stride; i += 4 * lanes) {
    WeightedValues<4>(p, values + i, stride, count, v_scale, gate + i, out + i, dim - i);
  }
  for (; i < dim; i += lanes) {
    WeightedValues<1>(p, values + i, stride, count, v_scale, gate + i, out + i, dim - i);
  }
}

void AttentionRow(const AttentionArgs& a, const KvCache& cache, int64_t t, int64_t head,
                  float* scratch) {
  if (cache.dtype() == DType::kE4M3) {
    AttentionRowOf<e4m3>(a, cache, t, head, scratch);
  } else {
    AttentionRowOf<bfloat16>(a, cache, t, head, scratch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace quern::smoke
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quern::smoke {

HWY_EXPORT(AttentionRow);

namespace simd {

size_t attention_scratch_floats(int64_t head_dim, int64_t tokens) {
  return static_cast<size_t>(round_up(head_dim, 16) + round_up(tokens, 16));
}

void attention_row(const AttentionArgs& args, const KvCache& cache, int64_t t, int64_t head,
                   float* scratch) {
  HWY_DYNAMIC_DISPATCH(AttentionRow)(args, cache, t, head, scratch);
}

}  // namespace simd
}  // namespace quern::smoke
#endif  // HWY_ONCE
