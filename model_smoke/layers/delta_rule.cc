#include "model_smoke/layers/delta_rule.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace quern::smoke {
namespace {

constexpr float kNormEps = 1e-6f;  // inside the root, models.md section 1.3

float softplus(float x) {
  return x > 20.0f ? x : std::log1p(std::exp(x));
}

/// x / sqrt(sum(x^2) + eps) * scale.
template <typename T>
void normalize(const T* x, int64_t n, float scale, float* y) {
  float sum = 0.0f;
  for (int64_t i = 0; i < n; ++i) sum += to_float(x[i]) * to_float(x[i]);
  const float r = scale / std::sqrt(sum + kNormEps);
  for (int64_t i = 0; i < n; ++i) y[i] = to_float(x[i]) * r;
}

/// Gathers one head's tokens into dense f32 and runs a twin over them.
template <typename T>
void run_scalar_head(const DeltaShape& shape, const DeltaArgs& args, DeltaForm form,
                     DeltaState& state, int64_t h) {
  const int64_t tokens = args.qkv.rows, dk = shape.key_dim, dv = shape.value_dim;
  std::vector<float> q(static_cast<size_t>(tokens * dk)), k(q.size());
  std::vector<float> v(static_cast<size_t>(tokens * dv)), o(v.size());
  std::vector<float> g(static_cast<size_t>(tokens)), beta(g.size());
  for (int64_t t = 0; t < tokens; ++t) {
    const T* row = static_cast<const T*>(args.qkv.data) + t * args.qkv.row_stride;
    const int64_t key = shape.key_head_of(h) * dk;
    normalize(row + key, dk, 1.0f / std::sqrt(static_cast<float>(dk)), &q[t * dk]);
    normalize(row + shape.key_width() + key, dk, 1.0f, &k[t * dk]);
    for (int64_t i = 0; i < dv; ++i) {
      v[t * dv + i] = to_float(row[2 * shape.key_width() + h * dv + i]);
    }
    g[t] = static_cast<const float*>(args.g.data)[t * args.g.row_stride + h];
    beta[t] = static_cast<const float*>(args.beta.data)[t * args.beta.row_stride + h];
  }
  const int64_t step = form == DeltaForm::kChunked ? kDeltaChunk : std::max<int64_t>(tokens, 1);
  for (int64_t t = 0; t < tokens; t += step) {
    const scalar::DeltaHead head{.tokens = std::min(step, tokens - t),
                                 .key_dim = dk,
                                 .value_dim = dv,
                                 .q = &q[t * dk],
                                 .k = &k[t * dk],
                                 .v = &v[t * dv],
                                 .g = &g[t],
                                 .beta = &beta[t],
                                 .o = &o[t * dv],
                                 .s = state.head(h),
                                 .stride = state.stride};
    form == DeltaForm::kChunked ? scalar::delta_chunk(head) : scalar::delta_recurrent(head);
  }
  for (int64_t t = 0; t < tokens; ++t) {
    T* out = static_cast<T*>(args.o.data) + t * args.o.row_stride + h * dv;
    for (int64_t i = 0; i < dv; ++i) out[i] = from_float<T>(o[t * dv + i]);
  }
}

}  // namespace

void delta_gates(MatrixView a, MatrixView b, VectorView a_log, VectorView dt_bias,
                 MutableMatrixView g, MutableMatrixView beta) {
  require(a.dtype == DType::kF32 && b.dtype == DType::kF32 && a_log.size == a.cols &&
              dt_bias.size == a.cols && g.cols == a.cols && beta.cols == b.cols,
          "delta_gates: shapes or types differ");
  const float* log_rate = static_cast<const float*>(a_log.data);
  const float* bias = static_cast<const float*>(dt_bias.data);
  for (int64_t t = 0; t < a.rows; ++t) {
    const float* in_a = static_cast<const float*>(a.data) + t * a.row_stride;
    const float* in_b = static_cast<const float*>(b.data) + t * b.row_stride;
    float* out_g = static_cast<float*>(g.data) + t * g.row_stride;
    float* out_beta = static_cast<float*>(beta.data) + t * beta.row_stride;
    for (int64_t h = 0; h < a.cols; ++h) {
      out_g[h] = -std::exp(log_rate[h]) * softplus(in_a[h] + bias[h]);
      out_beta[h] = 1.0f / (1.0f + std::exp(-in_b[h]));
    }
  }
}

void gated_delta_rule(LayerExec& exec, const DeltaShape& shape, const DeltaArgs& args,
                      DeltaForm form, DeltaState& state) {
  require(args.qkv.cols == shape.channels() && args.o.cols == shape.value_width() &&
              args.o.rows == args.qkv.rows && args.o.dtype == args.qkv.dtype &&
              args.g.cols == shape.value_heads && args.beta.cols == shape.value_heads &&
              args.g.rows == args.qkv.rows && args.beta.rows == args.qkv.rows &&
              shape.value_heads % shape.key_heads == 0 && state.key_dim == shape.key_dim &&
              state.value_dim == shape.value_dim,
          "gated_delta_rule: shapes or types differ");
  if (exec.impl() == LayerImpl::kSimd && args.qkv.dtype == DType::kBF16) {
    exec.for_each(shape.value_heads, simd::delta_scratch_floats(shape),
                  [&](int64_t h, float* scratch) {
                    if (form == DeltaForm::kChunked) {
                      simd::delta_head_chunked(shape, args, state, h, scratch);
                    } else {
                      simd::delta_head_recurrent(shape, args, state, h, scratch);
                    }
                  });
    return;
  }
  with_element_type(args.qkv.dtype, [&]<typename T>(T) {
    exec.for_each(shape.value_heads, 0,
                  [&](int64_t h, float*) { run_scalar_head<T>(shape, args, form, state, h); });
  });
}

namespace scalar {

void delta_recurrent(const DeltaHead& a) {
  std::vector<float> delta(static_cast<size_t>(a.value_dim));
  for (int64_t t = 0; t < a.tokens; ++t) {
    const float* q = a.q + t * a.key_dim;
    const float* k = a.k + t * a.key_dim;
    const float decay = std::exp(a.g[t]);
    for (int64_t c = 0; c < a.value_dim; ++c) {
      float r = 0.0f;
      for (int64_t i = 0; i < a.key_dim; ++i) {
        a.s[i * a.stride + c] *= decay;
        r += a.s[i * a.stride + c] * k[i];
      }
      delta[c] = a.beta[t] * (a.v[t * a.value_dim + c] - r);
    }
    for (int64_t c = 0; c < a.value_dim; ++c) {
      float o = 0.0f;
      for (int64_t i = 0; i < a.key_dim; ++i) {
        a.s[i * a.stride + c] += k[i] * delta[c];
        o += a.s[i * a.stride + c] * q[i];
      }
      a.o[t * a.value_dim + c] = o;
    }
  }
}

namespace {

float dot(const float* x, const float* y, int64_t n) {
  float sum = 0.0f;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

/// x = (I + a)^-1 x by forward substitution, x [n, cols]; a is strictly lower triangular.
void solve_unit_lower(const std::vector<float>& a, int64_t n, int64_t cols, std::vector<float>& x) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      for (int64_t c = 0; c < cols; ++c) x[i * cols + c] -= a[i * n + j] * x[j * cols + c];
    }
  }
}

/// The decays of a chunk, from sums G_i = g_0 + .. + g_i kept in double: exp(G_i - G_j) must be
/// right when both are large and near each other.
class ChunkDecay {
 public:
  ChunkDecay(const float* g, int64_t n) : sum_(static_cast<size_t>(n)) {
    double total = 0.0;
    for (int64_t i = 0; i < n; ++i) sum_[i] = total += static_cast<double>(g[i]);
  }
  float from_start(int64_t i) const { return static_cast<float>(std::exp(sum_[i])); }
  /// Only ever asked for i >= j: for i < j it would overflow.
  float between(int64_t i, int64_t j) const {
    return static_cast<float>(std::exp(sum_[i] - sum_[j]));
  }

 private:
  std::vector<double> sum_;
};

/// O_i = exp(G_i) q_i S0 + sum over j <= i of (q_i k_j) exp(G_i - G_j) V'_j; `v` holds V'.
void chunk_outputs(const DeltaHead& a, const ChunkDecay& decay, const std::vector<float>& v) {
  const int64_t dk = a.key_dim, dv = a.value_dim;
  for (int64_t i = 0; i < a.tokens; ++i) {
    for (int64_t c = 0; c < dv; ++c) {
      float o = 0.0f;
      for (int64_t x = 0; x < dk; ++x) o += a.q[i * dk + x] * a.s[x * a.stride + c];
      a.o[i * dv + c] = o * decay.from_start(i);
    }
    for (int64_t j = 0; j <= i; ++j) {
      const float p = dot(a.q + i * dk, a.k + j * dk, dk) * decay.between(i, j);
      for (int64_t c = 0; c < dv; ++c) a.o[i * dv + c] += p * v[j * dv + c];
    }
  }
}

/// S1 = exp(G_C) S0 + sum_i exp(G_C - G_i) k_i V'_i^T.
void chunk_state(const DeltaHead& a, const ChunkDecay& decay, const std::vector<float>& v) {
  const int64_t last = a.tokens - 1, dk = a.key_dim, dv = a.value_dim;
  for (int64_t x = 0; x < dk; ++x) {
    for (int64_t c = 0; c < dv; ++c) a.s[x * a.stride + c] *= decay.from_start(last);
    for (int64_t i = 0; i <= last; ++i) {
      const float k = a.k[i * dk + x] * decay.between(last, i);
      for (int64_t c = 0; c < dv; ++c) a.s[x * a.stride + c] += k * v[i * dv + c];
    }
  }
}

}  // namespace

void delta_chunk(const DeltaHead& a) {
  const int64_t n = a.tokens, dk = a.key_dim, dv = a.value_dim;
  const ChunkDecay decay(a.g, n);
  std::vector<float> inner(static_cast<size_t>(n * n)), u(static_cast<size_t>(n * dv)),
      w(static_cast<size_t>(n * dk));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      inner[i * n + j] = a.beta[i] * dot(a.k + i * dk, a.k + j * dk, dk) * decay.between(i, j);
    }
    for (int64_t c = 0; c < dv; ++c) u[i * dv + c] = a.beta[i] * a.v[i * dv + c];
    for (int64_t c = 0; c < dk; ++c) {
      w[i * dk + c] = a.beta[i] * a.k[i * dk + c] * decay.from_start(i);
    }
  }
  solve_unit_lower(inner, n, dv, u);
  solve_unit_lower(inner, n, dk, w);
  for (int64_t i = 0; i < n; ++i) {  // u becomes V' = U - W S0
    for (int64_t x = 0; x < dk; ++x) {
      for (int64_t c = 0; c < dv; ++c) u[i * dv + c] -= w[i * dk + x] * a.s[x * a.stride + c];
    }
  }
  chunk_outputs(a, decay, u);
  chunk_state(a, decay, u);
}

}  // namespace scalar
}  // namespace quern::smoke
