#pragma once

#include <cstdint>

namespace quern::smoke {

/// How far logits are from expected ones. NaN and infinity in either never compare as close.
class LogitStats {
 public:
  /// [rows, vocab] each, dense.
  void add(const float* expected, const float* actual, int64_t rows, int64_t vocab);
  void add(const LogitStats& other);

  int64_t rows() const noexcept { return rows_; }
  double max_abs() const noexcept { return max_abs_; }
  /// Root of sum (actual - expected)^2 / sum expected^2.
  double relative_rms() const noexcept;
  /// Mean over rows of KL(softmax(expected) || softmax(actual)), nats.
  double kl() const noexcept;
  /// Share of rows whose largest logit is at the same place.
  double argmax_agreement() const noexcept;

 private:
  int64_t rows_ = 0, agreements_ = 0;
  double max_abs_ = 0, error2_ = 0, expected2_ = 0, kl_ = 0;
};

/// Index of the largest, the first of equals; 0 when all are NaN.
int64_t argmax(const float* x, int64_t n) noexcept;

}  // namespace quern::smoke
