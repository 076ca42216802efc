#pragma once

#include <cstdint>
#include <vector>

#include "model_smoke/layers/exec.h"
#include "quern/tensor_view.h"

namespace quern::smoke {

/// The gated delta rule of Qwen3.5 (models.md section 1.3). For each value head, with a state S
/// [key_dim, value_dim] that starts at zero, q and k normalised to length 1 (q also /
/// sqrt(key_dim)):
///   S = exp(g_t) S;  r = S^T k_t;  d = beta_t (v_t - r);  S += k_t d^T;  o_t = S^T q_t
/// Value head h reads the q and k of key head h / (value_heads / key_heads).
struct DeltaShape {
  int64_t key_heads = 0;
  int64_t value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;

  int64_t key_width() const noexcept { return key_heads * key_dim; }
  int64_t value_width() const noexcept { return value_heads * value_dim; }
  int64_t channels() const noexcept { return 2 * key_width() + value_width(); }
  int64_t key_head_of(int64_t value_head) const noexcept {
    return value_head / (value_heads / key_heads);
  }
};

/// S of every value head, f32, rows padded to 16 floats (the padding stays zero).
struct DeltaState {
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t stride = 0;
  std::vector<float> data;

  DeltaState() = default;
  explicit DeltaState(const DeltaShape& shape)
      : key_dim(shape.key_dim),
        value_dim(shape.value_dim),
        stride(round_up(shape.value_dim, 16)),
        data(static_cast<size_t>(shape.value_heads * shape.key_dim * stride)) {}
  void reset() { data.assign(data.size(), 0.0f); }
  float* head(int64_t h) noexcept { return data.data() + h * key_dim * stride; }
  const float* head(int64_t h) const noexcept { return data.data() + h * key_dim * stride; }
};

/// Two forms of the same sums. Chunked (64 tokens at a time) is matrix products, for prompts;
/// recurrent is the formula above, for single tokens. They agree to f32 rounding, not bit for bit.
enum class DeltaForm { kRecurrent, kChunked };
inline constexpr int64_t kDeltaChunk = 64;

/// g = -exp(a_log) * softplus(a + dt_bias) and beta = logistic(b); all f32, [T, value_heads].
void delta_gates(MatrixView a, MatrixView b, VectorView a_log, VectorView dt_bias,
                 MutableMatrixView g, MutableMatrixView beta);

/// The operands of delta_gates in a struct, for whoever passes the op on.
struct DeltaGateArgs {
  MatrixView a, b;
  VectorView a_log, dt_bias;
  MutableMatrixView g, beta;
};

/// What of the delta rule is no operand.
struct DeltaRule {
  DeltaShape shape;
  DeltaForm form = DeltaForm::kChunked;
};

struct DeltaArgs {
  MatrixView qkv;       ///< [T, channels()]: q heads, k heads, v heads, after the convolution
  MatrixView g;         ///< f32 [T, value_heads], <= 0
  MatrixView beta;      ///< f32 [T, value_heads]
  MutableMatrixView o;  ///< [T, value_width()], dtype of qkv
};
void gated_delta_rule(LayerExec& exec, const DeltaShape& shape, const DeltaArgs& args,
                      DeltaForm form, DeltaState& state);

namespace scalar {

// One value head of the twins, in f32: q, k [T, key_dim], v, o [T, value_dim], dense; q and k are
// normalised already. `s` has rows of `stride` floats.
struct DeltaHead {
  int64_t tokens = 0, key_dim = 0, value_dim = 0;
  const float *q = nullptr, *k = nullptr, *v = nullptr, *g = nullptr, *beta = nullptr;
  float* o = nullptr;
  float* s = nullptr;
  int64_t stride = 0;
};
void delta_recurrent(const DeltaHead& head);
/// At most kDeltaChunk tokens.
void delta_chunk(const DeltaHead& head);

}  // namespace scalar

namespace simd {

/// Floats of scratch that a head needs.
size_t delta_scratch_floats(const DeltaShape& shape);
void delta_head_recurrent(const DeltaShape& shape, const DeltaArgs& args, DeltaState& state,
                          int64_t head, float* scratch);
void delta_head_chunked(const DeltaShape& shape, const DeltaArgs& args, DeltaState& state,
                        int64_t head, float* scratch);

}  // namespace simd
}  // namespace quern::smoke
