#include <algorithm>
#include <cmath>

#include "model_smoke/layers/delta_rule.h"
#include "model_smoke/layers/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model_smoke/layers/delta_rule_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which compiles the rest of this file once per target.
#include "hwy/highway.h"
#include "model_smoke/layers/matmul-inl.h"
#include "model_smoke/layers/simd-inl.h"

// Every row in scratch is padded to 16 floats with zeros, so no loop here has a tail.

HWY_BEFORE_NAMESPACE();
namespace quern::smoke {
namespace HWY_NAMESPACE {

constexpr int64_t kChunk = kDeltaChunk;

/// y = x / sqrt(sum(x^2) + 1e-6) * scale, padded.
void Normalize(const bfloat16* x, int64_t n, int64_t padded, float scale, float* y) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  widen_row(x, n, padded, y);
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < padded; i += lanes) {
    const auto v = hn::Load(d, y + i);
    sum = hn::MulAdd(v, v, sum);
  }
  const auto r = hn::Set(d, scale / std::sqrt(sum_lanes(sum) + 1e-6f));
  for (int64_t i = 0; i < padded; i += lanes) hn::Store(hn::Mul(hn::Load(d, y + i), r), d, y + i);
}

/// Where a head's numbers are, and its own scratch.
struct HeadPlan {
  const DeltaShape& shape;
  const DeltaArgs& args;
  int64_t head;
  int64_t key_pad, value_pad;

  HeadPlan(const DeltaShape& shape_in, const DeltaArgs& args_in, int64_t head_in)
      : shape(shape_in),
        args(args_in),
        head(head_in),
        key_pad(round_up(shape_in.key_dim, 16)),
        value_pad(round_up(shape_in.value_dim, 16)) {}

  void load(int64_t t, float* q, float* k, float* v) const {
    const bfloat16* row = static_cast<const bfloat16*>(args.qkv.data) + t * args.qkv.row_stride;
    const bfloat16* q_in = row + shape.key_head_of(head) * shape.key_dim;
    const float root = std::sqrt(static_cast<float>(shape.key_dim));
    Normalize(q_in, shape.key_dim, key_pad, 1.0f / root, q);
    Normalize(q_in + shape.key_width(), shape.key_dim, key_pad, 1.0f, k);
    widen_row(row + 2 * shape.key_width() + head * shape.value_dim, shape.value_dim, value_pad, v);
  }
  float gate(int64_t t) const {
    return static_cast<const float*>(args.g.data)[t * args.g.row_stride + head];
  }
  float beta(int64_t t) const {
    return static_cast<const float*>(args.beta.data)[t * args.beta.row_stride + head];
  }
  void store(int64_t t, const float* o) const {
    bfloat16* out = static_cast<bfloat16*>(args.o.data) + t * args.o.row_stride;
    narrow_row(o, shape.value_dim, out + head * shape.value_dim);
  }
};

/// One token, NV vectors of columns from c on: reads S once for r, once more (from L1) to update
/// it.
template <int NV>
void RecurrentColumns(const HeadPlan& p, const float* q, const float* k, const float* v,
                      float decay, float beta, float* s, int64_t c, float* o) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF32 r[NV], delta[NV], out[NV];
  for (int n = 0; n < NV; ++n) r[n] = out[n] = hn::Zero(d);
  for (int64_t i = 0; i < p.shape.key_dim; ++i) {
    const auto ki = hn::Set(d, k[i]);
    const float* row = s + i * p.value_pad + c;
    for (int n = 0; n < NV; ++n) r[n] = hn::MulAdd(ki, hn::LoadU(d, row + n * lanes), r[n]);
  }
  const auto vdecay = hn::Set(d, decay);
  for (int n = 0; n < NV; ++n) {
    const auto error = hn::NegMulAdd(vdecay, r[n], hn::Load(d, v + c + n * lanes));
    delta[n] = hn::Mul(hn::Set(d, beta), error);
  }
  for (int64_t i = 0; i < p.shape.key_dim; ++i) {
    const auto ki = hn::Set(d, k[i]);
    const auto qi = hn::Set(d, q[i]);
    float* row = s + i * p.value_pad + c;
    for (int n = 0; n < NV; ++n) {
      const auto old = hn::Mul(vdecay, hn::LoadU(d, row + n * lanes));
      const auto updated = hn::MulAdd(ki, delta[n], old);
      hn::StoreU(updated, d, row + n * lanes);
      out[n] = hn::MulAdd(qi, updated, out[n]);
    }
  }
  for (int n = 0; n < NV; ++n) hn::Store(out[n], d, o + c + n * lanes);
}

void HeadRecurrent(const DeltaShape& shape, const DeltaArgs& args, DeltaState& state, int64_t head,
                   float* scratch) {
  const HeadPlan p(shape, args, head);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  float* q = scratch;
  float* k = q + p.key_pad;
  float* v = k + p.key_pad;
  float* o = v + p.value_pad;
  float* s = state.head(head);
  for (int64_t t = 0; t < args.qkv.rows; ++t) {
    p.load(t, q, k, v);
    const float decay = std::exp(p.gate(t));
    int64_t c = 0;
    for (; c + 4 * lanes <= p.value_pad; c += 4 * lanes) {
      RecurrentColumns<4>(p, q, k, v, decay, p.beta(t), s, c, o);
    }
    for (; c < p.value_pad; c += lanes) {
      RecurrentColumns<1>(p, q, k, v, decay, p.beta(t), s, c, o);
    }
    p.store(t, o);
  }
}

/// Scratch of the chunked form; rows i are tokens of the chunk.
struct ChunkScratch {
  float *q, *k, *kt, *v, *o, *a, *p;

  ChunkScratch(float* base, int64_t key_pad, int64_t value_pad) {
    q = base;
    k = q + kChunk * key_pad;
    kt = k + kChunk * key_pad;  // [key_dim][kChunk]
    v = kt + kChunk * key_pad;
    o = v + kChunk * value_pad;
    a = o + kChunk * value_pad;  // [kChunk][kChunk], beta_i (k_i k_j) exp(G_i - G_j), j < i
    p = a + kChunk * kChunk;     // [kChunk][kChunk], (q_i k_j) exp(G_i - G_j), j <= i
  }
};

/// Multiplies the products k k^T and q k^T by their decays; what lies above the diagonal becomes 0
/// before anything is exponentiated there.
void ApplyDecay(const ChunkScratch& m, const double* sum, const float* beta, int64_t n) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr float kAbove = -1e30f;
  HWY_ALIGN float difference[kChunk];
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < kChunk; ++j) {
      difference[j] = j <= i ? static_cast<float>(sum[i] - sum[j]) : kAbove;
    }
    for (int64_t j = 0; j < kChunk; j += lanes) {
      const auto x = hn::Load(d, difference + j);
      const auto keep = hn::Gt(x, hn::Set(d, kAbove));
      const auto decay = hn::Exp(d, x);
      float* a = m.a + i * kChunk + j;
      float* p = m.p + i * kChunk + j;
      const auto scaled = hn::Mul(hn::Mul(hn::Load(d, a), decay), hn::Set(d, beta[i]));
      hn::Store(hn::IfThenElseZero(keep, scaled), d, a);
      hn::Store(hn::IfThenElseZero(keep, hn::Mul(hn::Load(d, p), decay)), d, p);
    }
  }
}

/// Row i of x is multiplied by factor(i).
template <typename Factor>
void ScaleRows(float* x, int64_t n, int64_t width, Factor factor) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; ++i) {
    const auto f = hn::Set(d, factor(i));
    for (int64_t c = 0; c < width; c += lanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, x + i * width + c), f), d, x + i * width + c);
    }
  }
}

/// v_i = beta_i (v_i - exp(G_i) (S0^T k_i)), the right side of the triangular system; `read` holds
/// the products S0^T k_i.
void RightHandSide(float* v, const float* read, const float* from_start, const float* beta,
                   int64_t n, int64_t width) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t c = 0; c < width; c += lanes) {
      float* at = v + i * width + c;
      const auto r = hn::Load(d, read + i * width + c);
      const auto error = hn::NegMulAdd(hn::Set(d, from_start[i]), r, hn::Load(d, at));
      hn::Store(hn::Mul(hn::Set(d, beta[i]), error), d, at);
    }
  }
}

/// v = (I + a)^-1 v, forward substitution.
void SolveUnitLower(const float* a, float* v, int64_t n, int64_t width) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 1; i < n; ++i) {
    for (int64_t c = 0; c < width; c += lanes) {
      auto sum = hn::Load(d, v + i * width + c);
      for (int64_t j = 0; j < i; ++j) {
        sum = hn::NegMulAdd(hn::Set(d, a[i * kChunk + j]), hn::Load(d, v + j * width + c), sum);
      }
      hn::Store(sum, d, v + i * width + c);
    }
  }
}

/// n <= kChunk tokens from t on. V' = (I + A)^-1 beta (v - exp(G) S0^T k) solves both triangular
/// systems of the formula (U and W S0) in one.
void Chunk(const HeadPlan& p, const ChunkScratch& m, int64_t t, int64_t n, float* s) {
  const int64_t dk = p.shape.key_dim, kp = p.key_pad, vp = p.value_pad;
  double sum[kChunk];
  HWY_ALIGN float from_start[kChunk];
  HWY_ALIGN float to_end[kChunk];
  HWY_ALIGN float beta[kChunk];
  double total = 0.0;
  std::fill(m.kt, m.kt + kChunk * kp, 0.0f);
  for (int64_t i = 0; i < n; ++i) {
    p.load(t + i, m.q + i * kp, m.k + i * kp, m.v + i * vp);
    for (int64_t x = 0; x < dk; ++x) m.kt[x * kChunk + i] = m.k[i * kp + x];
    beta[i] = p.beta(t + i);
    // In double: exp(G_i - G_j) must be right when both are large and near each other.
    sum[i] = total += p.gate(t + i);
    from_start[i] = static_cast<float>(std::exp(sum[i]));
  }
  for (int64_t i = 0; i < kChunk; ++i) {
    to_end[i] = i < n ? static_cast<float>(std::exp(total - sum[i])) : 0.0f;
  }
  matmul({n, kChunk, dk}, m.k, kp, m.kt, kChunk, m.a, kChunk, false);
  matmul({n, kChunk, dk}, m.q, kp, m.kt, kChunk, m.p, kChunk, false);
  ApplyDecay(m, sum, beta, n);

  matmul({n, vp, dk}, m.k, kp, s, vp, m.o, vp, false);
  RightHandSide(m.v, m.o, from_start, beta, n, vp);
  SolveUnitLower(m.a, m.v, n, vp);

  matmul({n, vp, dk}, m.q, kp, s, vp, m.o, vp, false);
  ScaleRows(m.o, n, vp, [&](int64_t i) { return from_start[i]; });
  matmul({n, vp, n}, m.p, kChunk, m.v, vp, m.o, vp, true);
  for (int64_t i = 0; i < n; ++i) p.store(t + i, m.o + i * vp);

  for (int64_t x = 0; x < dk; ++x) {
    for (int64_t i = 0; i < n; ++i) m.kt[x * kChunk + i] *= to_end[i];
  }
  const float whole = static_cast<float>(std::exp(total));
  ScaleRows(s, dk, vp, [whole](int64_t) { return whole; });
  matmul({dk, vp, n}, m.kt, kChunk, m.v, vp, s, vp, true);
}

void HeadChunked(const DeltaShape& shape, const DeltaArgs& args, DeltaState& state, int64_t head,
                 float* scratch) {
  const HeadPlan p(shape, args, head);
  const ChunkScratch m(scratch, p.key_pad, p.value_pad);
  for (int64_t t = 0; t < args.qkv.rows; t += kChunk) {
    Chunk(p, m, t, std::min(kChunk, args.qkv.rows - t), state.head(head));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace quern::smoke
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quern::smoke {

HWY_EXPORT(HeadRecurrent);
HWY_EXPORT(HeadChunked);

namespace simd {

size_t delta_scratch_floats(const DeltaShape& shape) {
  const int64_t pad = round_up(shape.key_dim, 16);
  const int64_t value_pad = round_up(shape.value_dim, 16);
  return static_cast<size_t>(kDeltaChunk * (3 * pad + 2 * value_pad + 2 * kDeltaChunk));
}

void delta_head_recurrent(const DeltaShape& shape, const DeltaArgs& args, DeltaState& state,
                          int64_t head, float* scratch) {
  HWY_DYNAMIC_DISPATCH(HeadRecurrent)(shape, args, state, head, scratch);
}
void delta_head_chunked(const DeltaShape& shape, const DeltaArgs& args, DeltaState& state,
                        int64_t head, float* scratch) {
  HWY_DYNAMIC_DISPATCH(HeadChunked)(shape, args, state, head, scratch);
}

}  // namespace simd
}  // namespace quern::smoke
#endif  // HWY_ONCE
