#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "model_smoke/layers/exec.h"
#include "model_smoke/tensor.h"
#include "quern/thread_pool.h"

namespace quern::smoke {

/// A pool of `threads` and an exec on it.
struct ExecFixture {
  std::unique_ptr<PersistentPool> pool;
  LayerExec exec;

  explicit ExecFixture(LayerImpl impl, int threads = 1)
      : pool(std::move(PersistentPool::create(threads)).value()), exec(*pool, impl) {}
};

inline Tensor random_tensor(DType dtype, int64_t rows, int64_t cols, uint32_t seed,
                            float scale = 1.0f) {
  Tensor t(dtype, rows, cols);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      if (dtype == DType::kBF16) {
        t.row<bfloat16>(r)[c] = bfloat16::from_float(normal(random));
      } else {
        t.row<float>(r)[c] = normal(random);
      }
    }
  }
  return t;
}

inline std::vector<float> random_vector(int64_t n, uint32_t seed, float scale = 1.0f) {
  std::vector<float> v(static_cast<size_t>(n));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  for (float& x : v) x = normal(random);
  return v;
}

inline VectorView view_of(const std::vector<float>& v) {
  return vector_view(v.data(), static_cast<int64_t>(v.size()));
}

inline float element(const Tensor& t, int64_t r, int64_t c) {
  return t.dtype() == DType::kBF16 ? t.row<bfloat16>(r)[c].to_float() : t.row<float>(r)[c];
}

/// The same numbers as f32 (bf16 widens exactly).
inline Tensor widened(const Tensor& t) {
  Tensor out(DType::kF32, t.rows(), t.cols());
  for (int64_t r = 0; r < t.rows(); ++r) {
    for (int64_t c = 0; c < t.cols(); ++c) out.row<float>(r)[c] = element(t, r, c);
  }
  return out;
}

inline bool same_bits(const Tensor& x, const Tensor& y) {
  return x.dtype() == y.dtype() && x.rows() == y.rows() && x.cols() == y.cols() &&
         std::memcmp(x.row<std::byte>(0), y.row<std::byte>(0),
                     size_of(x.dtype()) * static_cast<size_t>(x.rows() * x.cols())) == 0;
}

/// Two bf16 results of the same f32 formula summed in different orders: the f32 values differ by no
/// more than `slack`, so the rounded ones by no more than `ulps` units in the last place (at most
/// 2^-7 of the value each) plus that.
inline void expect_close_bf16(const Tensor& actual, const Tensor& expected, float slack,
                              int ulps = 1) {
  ASSERT_EQ(actual.rows(), expected.rows());
  ASSERT_EQ(actual.cols(), expected.cols());
  int shown = 0;
  for (int64_t r = 0; r < actual.rows(); ++r) {
    for (int64_t c = 0; c < actual.cols(); ++c) {
      const float a = element(actual, r, c), e = element(expected, r, c);
      if (std::isnan(a) && std::isnan(e)) continue;
      const float bound =
          static_cast<float>(ulps) * 0x1p-7f * std::max(std::fabs(a), std::fabs(e)) + slack;
      if (!(std::fabs(a - e) <= bound) && ++shown <= 5) {
        ADD_FAILURE() << "row " << r << " column " << c << ": " << a << ", expected " << e;
      }
    }
  }
  EXPECT_EQ(shown, 0) << "elements out of bounds";
}

/// Root of sum (x - y)^2 / sum y^2.
inline double relative_error(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    error += d * d;
    norm += static_cast<double>(y[i]) * static_cast<double>(y[i]);
  }
  return norm == 0 ? std::sqrt(error) : std::sqrt(error / norm);
}

}  // namespace quern::smoke
