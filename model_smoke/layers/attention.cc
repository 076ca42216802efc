#include "model_smoke/layers/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace quern::smoke {
namespace {

/// One query of one head; `p` holds a float per key. Kv: what the cache holds.
template <typename T, typename Kv>
void attention_row(const AttentionArgs& a, const KvCache& cache, int64_t t, int64_t h, float* p) {
  const int64_t d = a.q.dim, keys = a.first_position + t + 1, stride = cache.stride();
  const int64_t kv_head = h / (a.q.heads / cache.heads());
  const T* q = a.q.at<T>(t, h);
  const float scale = cache.k_scale() / std::sqrt(static_cast<float>(d));
  float largest = -INFINITY;
  for (int64_t s = 0; s < keys; ++s) {
    const Kv* k = cache.keys<Kv>(kv_head) + s * stride;
    float dot = 0.0f;
    for (int64_t i = 0; i < d; ++i) dot += to_float(q[i]) * to_float(k[i]);
    p[s] = dot * scale;
    largest = std::max(largest, p[s]);
  }
  float total = 0.0f;
  for (int64_t s = 0; s < keys; ++s) total += p[s] = std::exp(p[s] - largest);
  for (int64_t s = 0; s < keys; ++s) p[s] = round_to<T>(p[s] / total);
  const T* gate = a.gate.at<T>(t, h);
  T* out = a.out.at<T>(t, h);
  for (int64_t i = 0; i < d; ++i) {
    float sum = 0.0f;
    for (int64_t s = 0; s < keys; ++s) {
      sum += p[s] * to_float(cache.values<Kv>(kv_head)[s * stride + i]);
    }
    out[i] = from_float<T>(sum * cache.v_scale() / (1.0f + std::exp(-to_float(gate[i]))));
  }
}

}  // namespace

void KvCache::reserve(int64_t tokens) {
  if (tokens <= capacity_) return;
  const int64_t capacity = std::max(tokens, capacity_ * 3 / 2);
  const size_t row_bytes = static_cast<size_t>(stride_) * size_of(dtype_);
  for (Tensor* tensor : {&keys_, &values_}) {
    Tensor larger(dtype_, heads_ * capacity, stride_);
    larger.zero();
    for (int64_t h = 0; h < heads_ && length_ > 0; ++h) {
      std::memcpy(larger.row<std::byte>(0) + static_cast<size_t>(h * capacity) * row_bytes,
                  tensor->row<std::byte>(0) + static_cast<size_t>(h * capacity_) * row_bytes,
                  static_cast<size_t>(length_) * row_bytes);
    }
    *tensor = std::move(larger);
  }
  capacity_ = capacity;
}

void KvCache::append(HeadView k, HeadView v) {
  const bool e4m3_cache = dtype_ == DType::kE4M3;
  require((e4m3_cache || k.dtype == dtype_) && v.dtype == k.dtype && k.heads == heads_ &&
              v.heads == heads_ && k.dim == dim_ && v.dim == dim_ && k.rows == v.rows &&
              length_ + k.rows <= capacity_,
          "KvCache::append: shapes or types differ, or no room");
  const size_t bytes = static_cast<size_t>(dim_) * size_of(dtype_);
  with_element_type(k.dtype, [&]<typename T>(T) {
    const auto quantize = [this](const T* from, float scale, e4m3* to) {
      for (int64_t i = 0; i < dim_; ++i) to[i] = e4m3::from_float(to_float(from[i]) / scale);
    };
    for (int64_t t = 0; t < k.rows; ++t) {
      for (int64_t h = 0; h < heads_; ++h) {
        const int64_t row = h * capacity_ + length_ + t;
        if (e4m3_cache) {
          quantize(k.at<T>(t, h), k_scale_, keys_.row<e4m3>(row));
          quantize(v.at<T>(t, h), v_scale_, values_.row<e4m3>(row));
          continue;
        }
        std::memcpy(keys_.row<T>(row), k.at<T>(t, h), bytes);
        std::memcpy(values_.row<T>(row), v.at<T>(t, h), bytes);
      }
    }
  });
  length_ += k.rows;
}

void gated_attention(LayerExec& exec, const AttentionArgs& a, const KvCache& cache) {
  const bool e4m3_cache = cache.dtype() == DType::kE4M3;
  require((e4m3_cache || a.q.dtype == cache.dtype()) && a.gate.dtype == a.q.dtype &&
              a.out.dtype == a.q.dtype && a.q.dim == cache.head_dim() && a.gate.dim == a.q.dim &&
              a.out.dim == a.q.dim && a.gate.rows == a.q.rows && a.out.rows == a.q.rows &&
              a.gate.heads == a.q.heads && a.out.heads == a.q.heads &&
              a.q.heads % cache.heads() == 0 && a.first_position + a.q.rows <= cache.length(),
          "gated_attention: shapes or types differ");
  const int64_t items = a.q.rows * a.q.heads;
  if (exec.impl() == LayerImpl::kSimd && a.q.dtype == DType::kBF16) {
    exec.for_each(items, simd::attention_scratch_floats(a.q.dim, cache.length()),
                  [&](int64_t item, float* scratch) {
                    simd::attention_row(a, cache, item / a.q.heads, item % a.q.heads, scratch);
                  });
    return;
  }
  with_element_type(a.q.dtype, [&]<typename T>(T) {
    exec.for_each(items, static_cast<size_t>(cache.length()), [&](int64_t item, float* scratch) {
      const int64_t t = item / a.q.heads, head = item % a.q.heads;
      if (e4m3_cache) {
        attention_row<T, e4m3>(a, cache, t, head, scratch);
      } else {
        attention_row<T, T>(a, cache, t, head, scratch);
      }
    });
  });
}

}  // namespace quern::smoke
