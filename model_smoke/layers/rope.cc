#include "model_smoke/layers/rope.h"

#include <cmath>

namespace quern::smoke {
namespace {

template <typename T>
void rope_row(const float* cos, const float* sin, int64_t pairs, T* x) {
  for (int64_t j = 0; j < pairs; ++j) {
    const float first = to_float(x[j]), second = to_float(x[j + pairs]);
    x[j] = from_float<T>(first * cos[j] - second * sin[j]);
    x[j + pairs] = from_float<T>(second * cos[j] + first * sin[j]);
  }
}

}  // namespace

RopeTable::RopeTable(int64_t rotary_dim, double theta) : theta_(theta) {
  for (int64_t j = 0; j < rotary_dim; j += 2) {
    const double exponent = static_cast<double>(j) / static_cast<double>(rotary_dim);
    inverse_frequency_.push_back(static_cast<float>(1.0 / std::pow(theta, exponent)));
  }
}

void RopeTable::fill(int64_t first_position, int64_t count, DType activations) {
  first_position_ = first_position;
  count_ = count;
  cos_.resize(static_cast<size_t>(count * pairs()));
  sin_.resize(cos_.size());
  const auto store = [activations](double x) {
    const float f = static_cast<float>(x);
    return activations == DType::kBF16 ? round_to<bfloat16>(f) : f;
  };
  for (int64_t t = 0; t < count; ++t) {
    for (int64_t j = 0; j < pairs(); ++j) {
      const float angle = static_cast<float>(first_position + t) * inverse_frequency_[j];
      cos_[t * pairs() + j] = store(std::cos(static_cast<double>(angle)));
      sin_[t * pairs() + j] = store(std::sin(static_cast<double>(angle)));
    }
  }
}

void rope_half_split(LayerExec& exec, const RopeTable& table, MutableHeadView x) {
  require(table.count() >= x.rows && 2 * table.pairs() <= x.dim,
          "rope_half_split: the table does not fit");
  with_element_type(x.dtype, [&]<typename T>(T) {
    exec.for_each(x.rows * x.heads, 0, [&](int64_t item, float*) {
      const int64_t row = item / x.heads;
      T* vector = x.at<T>(row, item % x.heads);
      if constexpr (std::is_same_v<T, bfloat16>) {
        if (exec.impl() == LayerImpl::kSimd) {
          return simd::rope_row(table.cos_row(row), table.sin_row(row), table.pairs(), vector);
        }
      }
      rope_row(table.cos_row(row), table.sin_row(row), table.pairs(), vector);
    });
  });
}

}  // namespace quern::smoke
