#include "reference/scaled_weights.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/dot_products.h"

namespace quern::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A chain with an infinite or NaN product ends in what the true sum is, whatever the order, unless
/// the finite products alone could overflow on the way.
Bounded block_sum(const double* a, const double* w, int64_t columns) {
  double value = 0, magnitude = 0;
  for (int64_t p = 0; p < columns; ++p) {
    const double product = a[p] * w[p];
    value += product;
    if (std::isfinite(product)) magnitude += std::fabs(product);
  }
  if (std::isfinite(value)) return f32_chain(value, magnitude, columns);
  return {value, magnitude >= 0x1p127 ? kInfinity : 0};
}

/// One rounding for each block.
Bounded scaled_sum(const ScaledWeights& w, int64_t j, const double* a) {
  const int64_t blocks = (w.k + w.block - 1) / w.block;
  const double* row = w.weight.data() + j * w.k;
  const double* scales = w.scale.data() + j * blocks;
  Bounded sum;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t first = b * w.block;
    const Bounded d = block_sum(a + first, row + first, std::min(w.block, w.k - first));
    const double scale = scales[b];
    // Times an infinity the sign of d decides, or whether it is zero: here neither is known.
    if (std::isinf(scale) && std::fabs(d.value) <= d.bound) return {0, kInfinity};
    const double carried = d.bound == 0 ? 0 : d.bound * std::fabs(scale);
    sum = {sum.value + d.value * scale, sum.bound + carried};
    if (!std::isinf(sum.value)) sum = rounded_to_f32(sum);
  }
  return sum;
}

}  // namespace

Exact scaled_gemm_exact(const ScaledGemm& gemm) {
  const Epilogue& e = gemm.epilogue;
  const int64_t n = gemm.gate->n;
  Exact out{gemm.a.rows, n, {}};
  out.element.resize(static_cast<size_t>(out.rows * out.cols));
  for (int64_t i = 0; i < out.rows; ++i) {
    const std::vector<double> a = operand_row(gemm.a, i);
    for (int64_t j = 0; j < n; ++j) {
      Bounded t = scaled_sum(*gemm.gate, j, a.data());
      if (e.bias) t = plus(t, load(gemm.bias, j));
      if (gemm.up) {
        Bounded u = scaled_sum(*gemm.up, j, a.data());
        if (e.bias) u = plus(u, load(gemm.bias, n + j));
        t = silu_times(t, u);
      }
      if (e.residual) t = plus(t, load(gemm.residual, i, j));
      out.element[static_cast<size_t>(i * n + j)] = t;
    }
  }
  return out;
}

}  // namespace quern::reference
