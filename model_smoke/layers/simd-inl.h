// Loads, stores and small products shared by the Highway layers. Compiled once per target.
#if defined(QUERN_MODEL_SMOKE_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUERN_MODEL_SMOKE_SIMD_INL_H_
#undef QUERN_MODEL_SMOKE_SIMD_INL_H_
#else
#define QUERN_MODEL_SMOKE_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "quern/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace quern::smoke {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// At most 16 floats, so that rows padded to 16 need no tails.
using F32 = hn::CappedTag<float, 16>;
using VF32 = hn::Vec<F32>;

HWY_INLINE VF32 widen(const uint16_t* HWY_RESTRICT bits) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const hn::Rebind<uint16_t, F32> du16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(du16, bits))));
}

/// bf16 to f32, exact. Whole vectors only: `p` has Lanes(F32) elements.
HWY_INLINE VF32 load_bf16(const bfloat16* p) {
  uint16_t bits[16];
  std::memcpy(bits, p, hn::Lanes(F32()) * sizeof(uint16_t));
  return widen(bits);
}

/// The first `count` (< Lanes) elements, zeros behind them; nothing beyond is read.
HWY_INLINE VF32 load_bf16_tail(const bfloat16* p, size_t count) {
  uint16_t bits[16] = {};
  std::memcpy(bits, p, count * sizeof(uint16_t));
  return widen(bits);
}

HWY_INLINE VF32 load_bf16_upto(const bfloat16* p, int64_t left) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  return left >= lanes ? load_bf16(p) : load_bf16_tail(p, static_cast<size_t>(left));
}

/// min(left, Lanes) floats, zeros behind them.
HWY_INLINE VF32 load_f32_upto(const float* p, int64_t left) {
  const F32 d;
  if (left >= static_cast<int64_t>(hn::Lanes(d))) return hn::LoadU(d, p);
  float tail[16] = {};
  std::memcpy(tail, p, static_cast<size_t>(left) * sizeof(float));
  return hn::LoadU(d, tail);
}

/// f32 to bf16 bits in the low half of each lane: round to nearest even, NaN stays a (quiet) NaN.
template <class DU = hn::RebindToUnsigned<F32>>
HWY_INLINE hn::Vec<DU> round_bits(VF32 v) {
  const DU du;
  const auto u = hn::BitCast(du, v);
  const auto high = hn::ShiftRight<16>(u);
  const auto odd = hn::And(high, hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fffu))));
  const auto nan = hn::MaskFromVec(hn::BitCast(du, hn::VecFromMask(F32(), hn::IsNaN(v))));
  return hn::IfThenElse(nan, hn::Or(high, hn::Set(du, 0x40u)), rounded);
}

/// v rounded to bf16, as f32.
HWY_INLINE VF32 round_to_bf16(VF32 v) {
  return hn::BitCast(F32(), hn::ShiftLeft<16>(round_bits(v)));
}

/// Stores min(left, Lanes) elements.
HWY_INLINE void store_bf16_upto(VF32 v, bfloat16* p, int64_t left) {
  const hn::RebindToSigned<F32> di;
  const hn::Rebind<uint16_t, F32> du16;
  uint16_t bits[16];
  // The values fit 16 bits and are not negative, so the saturating conversion is exact.
  hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di, round_bits(v))), du16, bits);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  const size_t count = static_cast<size_t>(left < lanes ? left : lanes);
  std::memcpy(p, bits, count * sizeof(uint16_t));
}

/// n bf16 into floats, zeros up to `padded`, a multiple of 16.
HWY_INLINE void widen_row(const bfloat16* x, int64_t n, int64_t padded, float* y) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  for (int64_t i = 0; i < padded; i += lanes) {
    const VF32 v = i < n ? load_bf16_upto(x + i, n - i) : hn::Zero(F32());
    hn::StoreU(v, F32(), y + i);
  }
}

HWY_INLINE void narrow_row(const float* x, int64_t n, bfloat16* y) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  for (int64_t i = 0; i < n; i += lanes) store_bf16_upto(hn::LoadU(F32(), x + i), y + i, n - i);
}

HWY_INLINE float sum_lanes(VF32 v) {
  return hn::GetLane(hn::SumOfLanes(F32(), v));
}

/// 1 / (1 + e^-x). Exp is good up to 104, where it is infinite already; NaN stays NaN.
HWY_INLINE VF32 logistic(VF32 x) {
  const F32 d;
  const auto one = hn::Set(d, 1.0f);
  const auto y = hn::Div(one, hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 104.0f)))));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

HWY_INLINE VF32 silu(VF32 x) {
  const F32 d;
  const auto one = hn::Set(d, 1.0f);
  const auto e = hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 104.0f)));
  return hn::Div(x, hn::Add(one, e));
}

}  // namespace HWY_NAMESPACE
}  // namespace quern::smoke
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
