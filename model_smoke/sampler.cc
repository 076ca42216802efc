#include "model_smoke/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model_smoke/metrics.h"

namespace quern::smoke {

int32_t Sampler::pick(const float* logits, int64_t vocab) {
  if (options_.temperature <= 0) return static_cast<int32_t>(argmax(logits, vocab));
  order_.resize(static_cast<size_t>(vocab));
  std::iota(order_.begin(), order_.end(), 0);
  size_t keep = order_.size();
  if (options_.top_k > 0) keep = std::min(keep, static_cast<size_t>(options_.top_k));
  // Ties by id, and NaN last, so that the order is one and the same everywhere.
  const auto before = [logits](int32_t x, int32_t y) {
    const bool nan_x = std::isnan(logits[x]), nan_y = std::isnan(logits[y]);
    if (nan_x != nan_y) return nan_y;
    if (!nan_x && logits[x] != logits[y]) return logits[x] > logits[y];
    return x < y;
  };
  std::partial_sort(order_.begin(), order_.begin() + static_cast<int64_t>(keep), order_.end(),
                    before);
  weight_.clear();
  double total = 0;
  const double largest = static_cast<double>(logits[order_[0]]);
  for (size_t i = 0; i < keep; ++i) {
    const double x = static_cast<double>(logits[order_[i]]);
    weight_.push_back(std::exp((x - largest) / options_.temperature));
    total += weight_.back();
  }
  double kept = 0;
  size_t nucleus = 0;
  while (nucleus < keep && (nucleus == 0 || kept < options_.top_p * total)) {
    kept += weight_[nucleus++];
  }
  // 53 random bits: uniform_real_distribution may differ between standard libraries.
  double left = static_cast<double>(random_() >> 11) * 0x1p-53 * kept;
  for (size_t i = 0; i < nucleus; ++i) {
    left -= weight_[i];
    if (left < 0) return order_[i];
  }
  return order_[nucleus - 1];
}

}  // namespace quern::smoke
