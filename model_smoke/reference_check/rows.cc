// Ops that work on rows and vectors: embedding, norms, SiLU, RoPE, convolution.
#include <cmath>

#include "model_smoke/reference_check/checks.h"
#include "model_smoke/reference_check/element_check.h"
#include "reference/numeric.h"

namespace quern::smoke {
namespace {

double value_at(const HeadView& x, int64_t row, int64_t head, int64_t i) {
  return reference::load(x.data, x.dtype, row * x.row_stride + head * x.head_stride + i);
}

/// silu and its error in f32: with exp within 2 ulp and three roundings (1 + e, the quotient, one
/// to spare) the relative error is below 4 * 2^-23; below -88 the exponential overflows and the
/// result may be zero where the truth is under 2^-121 (reference/exact.h, silu_times).
Bounded silu(Bounded x) {
  return reference::silu_times(x, {1, 0});
}

/// 1 / sqrt(mean + eps) of one vector, relative error in *error. The n squares and their sum are
/// all positive: gamma(n). The division, eps and n itself add 2; the root halves that and adds 1,
/// the reciprocal 1. What squares below 2^-149 lose is at most n 2^-149 of the sum.
double inverse_rms(const HeadView& x, int64_t row, int64_t head, double eps, double* error) {
  double sum = 0;
  for (int64_t i = 0; i < x.dim; ++i) {
    const double v = value_at(x, row, head, i);
    sum += v * v;
  }
  const double n = static_cast<double>(x.dim), mean = sum / n + eps;
  *error = gamma((n + 2) / 2 + 2) + 0x1p-149 / mean;
  if (sum >= 0x1p127) *error = INFINITY;  // f32 may overflow
  return 1 / std::sqrt(mean);
}

template <typename F>
void for_vectors(int64_t rows, int64_t heads, F&& f) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t head = 0; head < heads; ++head) f(row, head);
  }
}

}  // namespace

Comparison check_embed(MatrixView table, Span<const int64_t> ids, MatrixView y) {
  ElementCheck check(y.dtype);
  for (int64_t t = 0; t < y.rows; ++t) {
    const int64_t id = ids[static_cast<size_t>(t)];
    for (int64_t i = 0; i < y.cols; ++i) {
      check.add(t, i, reference::load(y, t, i), {reference::load(table, id, i), 0});
    }
  }
  return check.result();
}

/// y = x r (1 + w): r as above, then 1 + w and two products.
Comparison check_rms_norm(const NormArgs& a) {
  ElementCheck check(a.y.dtype);
  for_vectors(a.x.rows, a.x.heads, [&](int64_t row, int64_t head) {
    double error = 0;
    const double r = inverse_rms(a.x, row, head, static_cast<double>(a.eps), &error);
    for (int64_t i = 0; i < a.x.dim; ++i) {
      const double y = value_at(a.x, row, head, i) * r * (1 + reference::load(a.w, i));
      check.add(row, head * a.x.dim + i, value_at(a.y, row, head, i),
                {y, std::fabs(y) * (error + gamma(4)) + kTiny});
    }
  });
  return check.result();
}

/// y = bf16(x r) w silu(z): the inner rounding may fall either way where x r is near a tie.
Comparison check_gated_norm(const GatedNormArgs& a) {
  ElementCheck check(a.y.dtype);
  for_vectors(a.x.rows, a.x.heads, [&](int64_t row, int64_t head) {
    double error = 0;
    const double r = inverse_rms(a.x, row, head, static_cast<double>(a.eps), &error);
    for (int64_t i = 0; i < a.x.dim; ++i) {
      const double scaled = value_at(a.x, row, head, i) * r;
      Bounded normed{scaled, std::fabs(scaled) * (error + gamma(2)) + kTiny};
      if (a.y.dtype == DType::kBF16) normed = rounded_to_bf16(normed);
      const double w = reference::load(a.w, i);
      const Bounded gate = silu({value_at(a.z, row, head, i), 0});
      const double y = normed.value * w * gate.value;
      const double bound = normed.bound * std::fabs(w * gate.value) +
                           (std::fabs(normed.value) + normed.bound) * std::fabs(w) * gate.bound +
                           std::fabs(y) * gamma(3) + kTiny;
      check.add(row, head * a.x.dim + i, value_at(a.y, row, head, i), {y, bound});
    }
  });
  return check.result();
}

Comparison check_silu_mul(MatrixView gate, MatrixView up, MatrixView y) {
  ElementCheck check(y.dtype);
  for (int64_t t = 0; t < y.rows; ++t) {
    for (int64_t i = 0; i < y.cols; ++i) {
      const Bounded exact =
          reference::silu_times({reference::load(gate, t, i), 0}, {reference::load(up, t, i), 0});
      check.add(t, i, reference::load(y, t, i), exact);
    }
  }
  return check.result();
}

/// One product in f32: exact in double, off by u of itself.
Comparison check_scale_columns(MatrixView x, VectorView factors, MatrixView y) {
  ElementCheck check(y.dtype);
  for (int64_t t = 0; t < y.rows; ++t) {
    for (int64_t i = 0; i < y.cols; ++i) {
      const double product = reference::load(x, t, i) * reference::load(factors, i);
      check.add(t, i, reference::load(y, t, i), {product, kU * std::fabs(product) + kTiny});
    }
  }
  return check.result();
}

/// The angles are part of the model: f32(position) * f32(theta^(-2j / R)) in f32, its cos and sin
/// rounded to the activation type. Two products and a sum: each product is off by u of itself, the
/// sum by u of the result, so 2 u (|a c| + |b s|) covers both, fused or not.
Comparison check_rope(const RopeTable& table, HeadView before, HeadView after) {
  ElementCheck check(after.dtype);
  const int64_t pairs = table.pairs();
  const auto store = [&](double x) {
    const double f = static_cast<double>(static_cast<float>(x));
    return after.dtype == DType::kBF16 ? reference::round_to(reference::kFormatBF16, f) : f;
  };
  for_vectors(after.rows, after.heads, [&](int64_t row, int64_t head) {
    const int64_t at = head * after.dim;
    for (int64_t j = 0; j < pairs; ++j) {
      const float frequency =
          static_cast<float>(1.0 / std::pow(table.theta(), static_cast<double>(2 * j) /
                                                               static_cast<double>(2 * pairs)));
      const float angle = static_cast<float>(table.first_position() + row) * frequency;
      const double c = store(std::cos(static_cast<double>(angle)));
      const double s = store(std::sin(static_cast<double>(angle)));
      const double a = value_at(before, row, head, j), b = value_at(before, row, head, j + pairs);
      check.add(row, at + j, value_at(after, row, head, j),
                {a * c - b * s, 2 * kU * (std::fabs(a * c) + std::fabs(b * s)) + kTiny});
      check.add(row, at + j + pairs, value_at(after, row, head, j + pairs),
                {b * c + a * s, 2 * kU * (std::fabs(b * c) + std::fabs(a * s)) + kTiny});
    }
    for (int64_t i = 2 * pairs; i < after.dim; ++i) {
      check.add(row, at + i, value_at(after, row, head, i), {value_at(before, row, head, i), 0});
    }
  });
  return check.result();
}

namespace {

/// u at time t, where what comes before row 0 is in the state.
double conv_input(const ConvArgs& a, const ConvState& before, int64_t t, int64_t c) {
  if (t >= 0) return reference::load(a.u, t, c);
  const size_t row = static_cast<size_t>(before.history + t);
  return static_cast<double>(
      before.rows[row * static_cast<size_t>(before.stride) + static_cast<size_t>(c)]);
}

}  // namespace

/// A sum of `taps` products in any order, then silu.
Comparison check_conv(const ConvArgs& a, const ConvState& before) {
  ElementCheck check(a.y.dtype);
  const ConvWeights& w = *a.w;
  for (int64_t t = 0; t < a.u.rows; ++t) {
    for (int64_t c = 0; c < w.channels; ++c) {
      double sum = 0, magnitude = 0;
      for (int64_t j = 0; j < w.taps; ++j) {
        const double tap = static_cast<double>(w.rows[static_cast<size_t>(j * w.stride + c)]);
        const double product = tap * conv_input(a, before, t - before.history + j, c);
        sum += product;
        magnitude += std::fabs(product);
      }
      const double bound = gamma(static_cast<double>(w.taps) + 1) * magnitude + kTiny;
      check.add(t, c, reference::load(a.y, t, c), silu({sum, bound}));
    }
  }
  return check.result();
}

Comparison check_conv_state(const ConvArgs& a, const ConvState& before, const ConvState& after) {
  ElementCheck check(DType::kF32);
  for (int64_t i = 0; i < after.history; ++i) {
    for (int64_t c = 0; c < after.channels; ++c) {
      const double got = static_cast<double>(after.rows[static_cast<size_t>(i * after.stride + c)]);
      check.add(i, c, got, {conv_input(a, before, a.u.rows - after.history + i, c), 0});
    }
  }
  return check.result();
}

/// g = -exp(a_log) softplus(a + dt_bias). x = a + dt_bias is off by u |x|, and softplus follows it
/// with slope logistic(x); exp and log1p within 2 ulp each are 2 * 2^-22 of softplus, because
/// log1p(e) >= e / (1 + e); above 20 softplus is taken for x, which is off by e^-20. The rate's own
/// exp and the product come on top. beta = 1 / (1 + e^-b): exp and two roundings.
GateComparison check_delta_gates(const DeltaGateArgs& a) {
  ElementCheck g_check(DType::kF32), beta_check(DType::kF32);
  for (int64_t t = 0; t < a.a.rows; ++t) {
    for (int64_t h = 0; h < a.a.cols; ++h) {
      const double x = reference::load(a.a, t, h) + reference::load(a.dt_bias, h);
      const double x_bound = kU * std::fabs(x) + kTiny;
      const double softplus = x > 40 ? x : std::log1p(std::exp(x));
      const double slope = 1 / (1 + std::exp(-(x + x_bound)));
      const double softplus_bound =
          slope * x_bound + softplus * 2 * kExpError + (x + x_bound > 20 ? 2.1e-9 : 0);
      const double rate = std::exp(reference::load(a.a_log, h));
      double bound = rate * softplus_bound + rate * softplus * (kExpError + gamma(2)) + kTiny;
      if (rate * (softplus + softplus_bound) >= 0x1p127) bound = INFINITY;
      g_check.add(t, h, reference::load(a.g, t, h), {-rate * softplus, bound});

      const double beta = 1 / (1 + std::exp(-reference::load(a.b, t, h)));
      beta_check.add(t, h, reference::load(a.beta, t, h),
                     {beta, beta * (kExpError + gamma(3)) + kTiny});
    }
  }
  return {g_check.result(), beta_check.result()};
}

}  // namespace quern::smoke
