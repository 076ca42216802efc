#include <algorithm>
#include <cmath>
#include <vector>

#include "model_smoke/reference_check/checks.h"
#include "model_smoke/reference_check/element_check.h"

namespace quern::smoke {
namespace {

template <typename T>
std::vector<double> widened(const T* x, int64_t n) {
  std::vector<double> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) out[static_cast<size_t>(i)] = static_cast<double>(to_float(x[i]));
  return out;
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
  /// moves it by its bound. Then the gate: logistic is exp and two roundings, and a product.
  std::vector<Bounded> outputs() const {
    std::vector<double> sum(static_cast<size_t>(dim_)), bound(sum.size());
    const double steps = gamma(static_cast<double>(keys_) + 1);
    for (int64_t s = 0; s < keys_; ++s) {
      const Bounded& p = p_[static_cast<size_t>(s)];
      const T* v = cache_.values<T>(kv_head_) + s * cache_.stride();
      for (int64_t i = 0; i < dim_; ++i) {
        const double x = static_cast<double>(to_float(v[i]));
        sum[static_cast<size_t>(i)] += p.value * x;
        bound[static_cast<size_t>(i)] += (p.bound + steps * (p.value + p.bound)) * std::fabs(x);
      }
    }
    std::vector<Bounded> out;
    for (size_t i = 0; i < sum.size(); ++i) {
      const double logistic = 1 / (1 + std::exp(-gate_[i]));
      const double value = sum[i] * logistic;
      out.push_back({value, bound[i] * logistic +
                                (std::fabs(value) + bound[i]) * (kExpError + gamma(4)) +
                                (std::fabs(sum[i]) + bound[i]) * kTiny + kTiny});
    }
    return out;
  }

 private:
  /// Scores q k / sqrt(d): d products in any order, the root, the division and the product.
  void scores() {
    const double scale = 1 / std::sqrt(static_cast<double>(dim_));
    for (int64_t s = 0; s < keys_; ++s) {
      const T* k = cache_.keys<T>(kv_head_) + s * cache_.stride();
      double dot = 0, magnitude = 0;
      for (int64_t i = 0; i < dim_; ++i) {
        const double product = q_[static_cast<size_t>(i)] * static_cast<double>(to_float(k[i]));
        dot += product;
        magnitude += std::fabs(product);
      }
      score_.push_back(
          {dot * scale, gamma(static_cast<double>(dim_) + 4) * magnitude * scale + kTiny});
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

}  // namespace

Comparison check_append_kv(HeadView k, HeadView v, const KvCache& cache, int64_t first_position) {
  ElementCheck check(k.dtype);
  with_element_type(k.dtype, [&]<typename T>(T) {
    for (int64_t t = 0; t < k.rows; ++t) {
      for (int64_t h = 0; h < k.heads; ++h) {
        const int64_t at = (first_position + t) * cache.stride();
        const T* keys = cache.keys<T>(h) + at;
        const T* values = cache.values<T>(h) + at;
        for (int64_t i = 0; i < k.dim; ++i) {
          const auto add = [&](int64_t col, T got, T expected) {
            check.add(t, col, static_cast<double>(to_float(got)),
                      {static_cast<double>(to_float(expected)), 0});
          };
          add(h * k.dim + i, keys[i], k.at<T>(t, h)[i]);
          add((k.heads + h) * k.dim + i, values[i], v.at<T>(t, h)[i]);
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
