#include <algorithm>
#include <cmath>
#include <vector>

#include "model_smoke/reference_check/checks.h"
#include "model_smoke/reference_check/element_check.h"
#include "reference/numeric.h"

namespace quern::smoke {
namespace {

template <typename T>
std::vector<double> widened(const T* x, int64_t n) {
  std::vector<double> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) out[static_cast<size_t>(i)] = static_cast<double>(to_float(x[i]));
  return out;
}

/// An element of a cache, without its scale.
double cached(const KvCache& cache, const void* row, int64_t i) {
  return reference::load(row, cache.dtype(), i);
}
const void* cached_row(const KvCache& cache, bool keys, int64_t head, int64_t token) {
  const auto find = [&]<typename T>(T) -> const void* {
    return (keys ? cache.keys<T>(head) : cache.values<T>(head)) + token * cache.stride();
  };
  switch (cache.dtype()) {
    case DType::kE4M3:
      return find(uint8_t{});
    case DType::kF32:
      return find(float{});
    default:
      return find(bfloat16{});
  }
}

/// One query of one head against the cache.
template <typename T>
class Query {
 public:
  Query(const AttentionArgs& args, const KvCache& cache, int64_t t, int64_t head)
      : cache_(cache),
        kv_head_(head / (args.q.heads / cache.heads())),
        keys_(args.first_position + t + 1),
        dim_(args.q.dim),
        q_(widened(args.q.at<T>(t, head), dim_)),
        gate_(widened(args.gate.at<T>(t, head), dim_)) {
    scores();
    probabilities();
  }

  /// The sum of `keys` products in any order; a probability that may have rounded the other way
  /// moves it by its bound. Then the scale of an e4m3 cache, and the gate: logistic is exp and two
  /// roundings, and a product.
  std::vector<Bounded> outputs() const {
    std::vector<double> sum(static_cast<size_t>(dim_)), bound(sum.size());
    const double steps = gamma(static_cast<double>(keys_) + 1);
    for (int64_t s = 0; s < keys_; ++s) {
      const Bounded& p = p_[static_cast<size_t>(s)];
      const void* v = cached_row(cache_, false, kv_head_, s);
      for (int64_t i = 0; i < dim_; ++i) {
        const double x = cached(cache_, v, i);
        sum[static_cast<size_t>(i)] += p.value * x;
        bound[static_cast<size_t>(i)] += (p.bound + steps * (p.value + p.bound)) * std::fabs(x);
      }
    }
    std::vector<Bounded> out;
    const double scale = static_cast<double>(cache_.v_scale());
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] *= scale;
      bound[i] = (bound[i] * scale + kU * std::fabs(sum[i])) * (1 + kU) + kTiny;
      const double logistic = 1 / (1 + std::exp(-gate_[i]));
      const double value = sum[i] * logistic;
      out.push_back({value, bound[i] * logistic +
                                (std::fabs(value) + bound[i]) * (kExpError + gamma(4)) +
                                (std::fabs(sum[i]) + bound[i]) * kTiny + kTiny});
    }
    return out;
  }

 private:
  /// Scores q k scale / sqrt(d): d products in any order, the root, the division and the product,
  /// and the scale of an e4m3 cache.
  void scores() {
    const double scale =
        static_cast<double>(cache_.k_scale()) / std::sqrt(static_cast<double>(dim_));
    for (int64_t s = 0; s < keys_; ++s) {
      const void* k = cached_row(cache_, true, kv_head_, s);
      double dot = 0, magnitude = 0;
      for (int64_t i = 0; i < dim_; ++i) {
        const double product = q_[static_cast<size_t>(i)] * cached(cache_, k, i);
        dot += product;
        magnitude += std::fabs(product);
      }
      score_.push_back(
          {dot * scale, gamma(static_cast<double>(dim_) + 5) * magnitude * scale + kTiny});
    }
  }

  /// p = bf16(e / sum e), e = exp(score - m): whichever m the kernel found cancels. The exponent is
  /// off by the score's bound and one rounding of the difference, so e by expm1 of that, and exp's
  /// own error; the sum by the mean of those and its order. p is then rounded to the activation
  /// type, where values near a tie may go either way.
  void probabilities() {
    double largest = -INFINITY, reach = 0;
    for (const Bounded& s : score_) largest = std::max(largest, s.value);
    for (const Bounded& s : score_) reach = std::max(reach, s.bound);
    std::vector<double> e, error;
    double total = 0, weighted = 0;
    for (const Bounded& s : score_) {
      const double difference = s.value - largest;
      const double shift = s.bound + kU * (std::fabs(difference) + 2 * reach);
      e.push_back(std::exp(difference));
      error.push_back(std::expm1(shift) + kExpError * std::exp(shift));
      total += e.back();
      weighted += e.back() * error.back();
    }
    const double of_sum = weighted / total + gamma(static_cast<double>(keys_) + 2);
    for (size_t s = 0; s < e.size(); ++s) {
      const double p = e[s] / total;
      const double relative =
          of_sum < 1 ? (1 + error[s]) * (1 + 3 * kU) / (1 - of_sum) - 1 : INFINITY;
      const Bounded exact{p, p * relative + kTiny};
      p_.push_back(std::is_same_v<T, bfloat16> ? rounded_to_bf16(exact) : exact);
    }
  }

  const KvCache& cache_;
  int64_t kv_head_, keys_, dim_;
  std::vector<double> q_, gate_;
  std::vector<Bounded> score_, p_;
};

/// The e4m3 number nearest to the f32 quotient x / scale, the even code of two; found by looking at
/// all of them.
double nearest_e4m3(double x, float scale) {
  const float quotient = static_cast<float>(x) / scale;
  if (std::isnan(quotient)) return std::nan("");
  const double a = std::fabs(static_cast<double>(quotient));
  uint8_t best = 0;
  for (uint8_t code = 1; code < 0x7f; ++code) {
    const double d = std::fabs(reference::e4m3_to_double(code) - a);
    const double least = std::fabs(reference::e4m3_to_double(best) - a);
    if (d < least || (d == least && code % 2 == 0)) best = code;
  }
  if (!std::isfinite(a)) best = 0x7e;
  return std::copysign(reference::e4m3_to_double(best), static_cast<double>(quotient));
}

}  // namespace

Comparison check_append_kv(HeadView k, HeadView v, const KvCache& cache, int64_t first_position) {
  const bool fp8 = cache.dtype() == DType::kE4M3;
  ElementCheck check(k.dtype);
  with_element_type(k.dtype, [&]<typename T>(T) {
    for (int64_t t = 0; t < k.rows; ++t) {
      for (int64_t h = 0; h < k.heads; ++h) {
        const void* keys = cached_row(cache, true, h, first_position + t);
        const void* values = cached_row(cache, false, h, first_position + t);
        for (int64_t i = 0; i < k.dim; ++i) {
          const auto add = [&](int64_t col, const void* row, float scale, T given) {
            const double x = static_cast<double>(to_float(given));
            check.add(t, col, cached(cache, row, i), {fp8 ? nearest_e4m3(x, scale) : x, 0});
          };
          add(h * k.dim + i, keys, cache.k_scale(), k.at<T>(t, h)[i]);
          add((k.heads + h) * k.dim + i, values, cache.v_scale(), v.at<T>(t, h)[i]);
        }
      }
    }
  });
  return check.result();
}

Comparison check_attention(const AttentionArgs& a, const KvCache& cache) {
  ElementCheck check(a.out.dtype);
  with_element_type(a.out.dtype, [&]<typename T>(T) {
    for (int64_t t = 0; t < a.q.rows; ++t) {
      for (int64_t h = 0; h < a.q.heads; ++h) {
        const std::vector<Bounded> expected = Query<T>(a, cache, t, h).outputs();
        const T* got = a.out.at<T>(t, h);
        for (int64_t i = 0; i < a.q.dim; ++i) {
          check.add(t, h * a.q.dim + i, static_cast<double>(to_float(got[i])),
                    expected[static_cast<size_t>(i)]);
        }
      }
    }
  });
  return check.result();
}

}  // namespace quern::smoke
