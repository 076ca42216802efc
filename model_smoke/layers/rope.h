#pragma once

#include <cstdint>
#include <vector>

#include "model_smoke/layers/exec.h"
#include "quern/tensor_view.h"

namespace quern::smoke {

/// cos and sin of every position of a call: [T, rotary_dim / 2] f32, rounded to bf16 where
/// activations are bf16 (the model was trained with such tables). Angle p * theta^(-2j /
/// rotary_dim), computed in f32 as the model does.
class RopeTable {
 public:
  RopeTable() = default;
  RopeTable(int64_t rotary_dim, double theta);

  void fill(int64_t first_position, int64_t count, DType activations);
  int64_t pairs() const noexcept { return static_cast<int64_t>(inverse_frequency_.size()); }
  int64_t count() const noexcept { return count_; }
  double theta() const noexcept { return theta_; }
  int64_t first_position() const noexcept { return first_position_; }
  const float* cos_row(int64_t t) const noexcept { return cos_.data() + t * pairs(); }
  const float* sin_row(int64_t t) const noexcept { return sin_.data() + t * pairs(); }

 private:
  std::vector<float> inverse_frequency_, cos_, sin_;
  double theta_ = 0;
  int64_t first_position_ = 0, count_ = 0;
};

/// Rotates the first 2 * pairs elements of every vector in place, half-split pairing (j, j +
/// pairs); the rest is not touched. f32 inside, rounded once.
void rope_half_split(LayerExec& exec, const RopeTable& table, MutableHeadView x);

namespace simd {

void rope_row(const float* cos, const float* sin, int64_t pairs, bfloat16* x);

}  // namespace simd
}  // namespace quern::smoke
