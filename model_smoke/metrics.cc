#include "model_smoke/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quern::smoke {
namespace {

/// log sum exp, in double.
double log_normalizer(const float* x, int64_t n) {
  const double largest = static_cast<double>(x[argmax(x, n)]);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(x[i]) - largest);
  return largest + std::log(sum);
}

}  // namespace

int64_t argmax(const float* x, int64_t n) noexcept {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i) {
    if (x[i] > x[best] || std::isnan(x[best])) best = i;
  }
  return best;
}

void LogitStats::add(const float* expected, const float* actual, int64_t rows, int64_t vocab) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* want = expected + r * vocab;
    const float* got = actual + r * vocab;
    const double want_norm = log_normalizer(want, vocab), got_norm = log_normalizer(got, vocab);
    double kl = 0;
    for (int64_t i = 0; i < vocab; ++i) {
      const double x = static_cast<double>(want[i]), y = static_cast<double>(got[i]);
      const double error = std::fabs(y - x);
      // max() would drop a NaN.
      max_abs_ = std::isfinite(error) ? std::max(max_abs_, error)
                                      : std::numeric_limits<double>::infinity();
      error2_ += error * error;
      expected2_ += x * x;
      kl += std::exp(x - want_norm) * ((x - want_norm) - (y - got_norm));
    }
    kl_ += kl;
    agreements_ += argmax(want, vocab) == argmax(got, vocab);
  }
  rows_ += rows;
}

void LogitStats::add(const LogitStats& other) {
  rows_ += other.rows_;
  agreements_ += other.agreements_;
  max_abs_ = std::max(max_abs_, other.max_abs_);
  error2_ += other.error2_;
  expected2_ += other.expected2_;
  kl_ += other.kl_;
}

double LogitStats::relative_rms() const noexcept {
  return std::sqrt(error2_ / expected2_);
}
double LogitStats::kl() const noexcept {
  return kl_ / static_cast<double>(rows_);
}
double LogitStats::argmax_agreement() const noexcept {
  return static_cast<double>(agreements_) / static_cast<double>(rows_);
}

}  // namespace quern::smoke
