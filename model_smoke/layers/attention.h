#pragma once

#include <cstdint>

#include "model_smoke/layers/e4m3.h"
#include "model_smoke/layers/exec.h"
#include "quern/tensor_view.h"

namespace quern::smoke {

/// Keys (after norm and RoPE) and values of one attention layer, in the activation type or as
/// e4m3(x / scale): for each kv head a matrix [capacity, stride], stride = head_dim rounded up to
/// 16, zeros behind head_dim.
class KvCache {
 public:
  KvCache() = default;
  KvCache(DType dtype, int64_t kv_heads, int64_t head_dim)
      : dtype_(dtype), heads_(kv_heads), dim_(head_dim), stride_(round_up(head_dim, 16)) {}
  /// kE4M3 with these scales; x / scale is rounded to f32, then to e4m3.
  static KvCache e4m3_scaled(int64_t kv_heads, int64_t head_dim, float k_scale, float v_scale) {
    KvCache cache(DType::kE4M3, kv_heads, head_dim);
    cache.k_scale_ = k_scale;
    cache.v_scale_ = v_scale;
    return cache;
  }

  /// Room for `tokens` in all; keeps what is there.
  void reserve(int64_t tokens);
  /// k and v: [T, heads] of head_dim, same dtype as the cache, or f32 or bf16 where that is kE4M3.
  /// Room must have been reserved.
  void append(HeadView k, HeadView v);
  void reset() noexcept { length_ = 0; }

  DType dtype() const noexcept { return dtype_; }
  int64_t heads() const noexcept { return heads_; }
  int64_t head_dim() const noexcept { return dim_; }
  int64_t stride() const noexcept { return stride_; }
  int64_t length() const noexcept { return length_; }
  /// What stored keys and values are multiplied with; 1 unless the cache is kE4M3.
  float k_scale() const noexcept { return k_scale_; }
  float v_scale() const noexcept { return v_scale_; }
  template <typename T>
  const T* keys(int64_t head) const noexcept {
    return keys_.row<T>(head * capacity_);
  }
  template <typename T>
  const T* values(int64_t head) const noexcept {
    return values_.row<T>(head * capacity_);
  }

 private:
  DType dtype_ = DType::kBF16;
  int64_t heads_ = 0, dim_ = 0, stride_ = 0, length_ = 0, capacity_ = 0;
  float k_scale_ = 1, v_scale_ = 1;
  Tensor keys_, values_;  // [heads * capacity, stride]
};

/// out(t, h) = round((sum_s p_s v_s) * logistic(gate(t, h))), p = round(softmax(q(t, h) k_s /
/// sqrt(d))) over the cache's tokens 0 .. first_position + t; query head h reads kv head h / (heads
/// / kv heads). The inner rounding is to the activation type, as the model was trained. The scales
/// of an e4m3 cache act behind the sums: on the scores and on sum_s p_s v_s.
struct AttentionArgs {
  HeadView q;                  ///< [T, heads]
  HeadView gate;               ///< [T, heads]
  int64_t first_position = 0;  ///< the cache holds at least first_position + T tokens
  MutableHeadView out;         ///< [T, heads]
};
void gated_attention(LayerExec& exec, const AttentionArgs& args, const KvCache& cache);

namespace simd {

/// Floats of scratch for `tokens` keys.
size_t attention_scratch_floats(int64_t head_dim, int64_t tokens);
void attention_row(const AttentionArgs& args, const KvCache& cache, int64_t t, int64_t head,
                   float* scratch);

}  // namespace simd
}  // namespace quern::smoke
