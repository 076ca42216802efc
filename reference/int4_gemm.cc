#include "reference/int4_gemm.h"

#include <cmath>
#include <limits>

#include "reference/dot_products.h"
#include "reference/int4_weights.h"
#include "reference/quantize_rows.h"
#include "reference/shape_check.h"

namespace quern::reference {
namespace {

/// Weights with their columns in the order in which they are summed, so that a run is a range.
struct Sorted {
  Int4Values values;
  std::vector<Int4Run> runs;
  std::vector<uint8_t> code;  ///< [n, k]
};

Sorted sorted(const Int4Weights& w, const Int4GemmDesc& desc) {
  Sorted s;
  s.values = int4_values(w, desc);
  s.runs = int4_runs(s.values, desc);
  for (int64_t n = 0; n < desc.n; ++n) {
    for (const Int4Run& run : s.runs) {
      for (const int64_t k : run.columns) {
        s.code.push_back(s.values.code[static_cast<size_t>(n * desc.k + k)]);
      }
    }
  }
  return s;
}

template <typename T>
std::vector<T> sorted_row(const std::vector<Int4Run>& runs, const std::vector<T>& row) {
  std::vector<T> out;
  for (const Int4Run& run : runs) {
    for (const int64_t k : run.columns) out.push_back(row[static_cast<size_t>(k)]);
  }
  return out;
}

/// sum of s_g * (sum of (q - z) q_a), every sum of a group an exact integer.
float integer_sum(const Sorted& w, int64_t j, const std::vector<int8_t>& a, bool float_zeros) {
  const uint8_t* code = w.code.data() + j * w.values.k;
  const int8_t* x = a.data();
  float sum = 0;
  for (const Int4Run& run : w.runs) {
    const float zero = w.values.zero_at(j, run.group);
    const size_t columns = run.columns.size();
    int64_t products = 0, rows = 0;
    for (size_t p = 0; p < columns; ++p) {
      products += int32_t{code[p]} * int32_t{x[p]};
      rows += x[p];
    }
    float t = 0;
    if (float_zeros) {
      t = std::fma(-zero, static_cast<float>(rows), static_cast<float>(products));
    } else {
      t = static_cast<float>(products - static_cast<int64_t>(zero) * rows);
    }
    sum = std::fma(t, w.values.scale_at(j, run.group), sum);
    code += columns;
    x += columns;
  }
  return sum;
}

Exact w4a8(const Int4GemmDesc& desc, const Int4GemmArgs& args) {
  const Epilogue& e = desc.epilogue;
  const bool silu_mul = e.activation == Activation::kSiluMul;
  const bool float_zeros = desc.zeros == Int4Zeros::kF32;
  const Sorted gate = sorted(args.weights, desc);
  const Sorted up = silu_mul ? sorted(args.up_weights, desc) : Sorted();
  Exact out{args.a.rows, desc.n, {}};
  out.element.resize(static_cast<size_t>(out.rows * out.cols));
  for (int64_t i = 0; i < out.rows; ++i) {
    const QuantizedRow row = quantize_row(args.a, i);
    const std::vector<int8_t> a = sorted_row(gate.runs, row.q);
    const auto part = [&](const Sorted& w, int64_t j, int64_t bias_at) {
      float t = integer_sum(w, j, a, float_zeros) * row.scale;
      if (e.bias) t = t + static_cast<float>(load(args.bias, bias_at));
      return t;
    };
    for (int64_t j = 0; j < out.cols; ++j) {
      const float t = part(gate, j, j);
      Bounded r{t, 0};
      if (silu_mul) {
        r = silu_times({t, 0}, {part(up, j, desc.n + j), 0});
        if (e.residual) r = plus(r, load(args.residual, i, j));
      } else if (e.residual) {
        r.value = t + static_cast<float>(load(args.residual, i, j));
      }
      out.element[static_cast<size_t>(i * out.cols + j)] = r;
    }
  }
  return out;
}

/// The sum of one group of W4A16 before its scale: a chain of bf16 dot products. Floating-point
/// zeros act on the sum of A's columns, which is taken in double and rounded to f32 once; whether
/// that sum holds A's subnormals, which the products do not, is left open.
Bounded group_sum(const uint8_t* code, const double* a, size_t columns, float zero,
                  bool float_zeros) {
  const double subtracted = float_zeros ? 0.0 : static_cast<double>(zero);
  double value = 0, magnitude = 0, row = 0, row_magnitude = 0;
  for (size_t p = 0; p < columns; ++p) {
    const double product = (code[p] - subtracted) * a[p];
    value += product;
    magnitude += std::fabs(product);
    row += a[p];
    row_magnitude += std::fabs(a[p]);
  }
  const Bounded chain = f32_chain(value, magnitude, static_cast<int64_t>(columns));
  if (!float_zeros) return chain;
  const double steps = static_cast<double>(columns);
  const Bounded rows = rounded_to_f32({row, steps * (0x1p-52 * row_magnitude + 0x1p-126)});
  const double z = zero;
  return rounded_to_f32({chain.value - z * rows.value, chain.bound + std::fabs(z) * rows.bound});
}

/// sum = fma(d_g, s_g, sum), groups ascending: one rounding for each.
Bounded float_sum(const Sorted& w, int64_t j, const std::vector<double>& a, bool float_zeros) {
  const uint8_t* code = w.code.data() + j * w.values.k;
  const double* x = a.data();
  Bounded sum;
  for (const Int4Run& run : w.runs) {
    const size_t columns = run.columns.size();
    const Bounded d = group_sum(code, x, columns, w.values.zero_at(j, run.group), float_zeros);
    const double scale = w.values.scale_at(j, run.group);
    // Times an infinity the sign of d decides, or whether it is zero: here neither is known.
    if (std::isinf(scale) && std::fabs(d.value) <= d.bound) {
      return {0, std::numeric_limits<double>::infinity()};
    }
    sum = rounded_to_f32({sum.value + d.value * scale, sum.bound + d.bound * std::fabs(scale)});
    code += columns;
    x += columns;
  }
  return sum;
}

Exact w4a16(const Int4GemmDesc& desc, const Int4GemmArgs& args) {
  const Epilogue& e = desc.epilogue;
  const bool silu_mul = e.activation == Activation::kSiluMul;
  const bool float_zeros = desc.zeros == Int4Zeros::kF32;
  const Sorted gate = sorted(args.weights, desc);
  const Sorted up = silu_mul ? sorted(args.up_weights, desc) : Sorted();
  Exact out{args.a.rows, desc.n, {}};
  out.element.resize(static_cast<size_t>(out.rows * out.cols));
  for (int64_t i = 0; i < out.rows; ++i) {
    const std::vector<double> a = sorted_row(gate.runs, operand_row(args.a, i));
    for (int64_t j = 0; j < out.cols; ++j) {
      Bounded t = float_sum(gate, j, a, float_zeros);
      if (e.bias) t = plus(t, load(args.bias, j));
      if (silu_mul) {
        Bounded u = float_sum(up, j, a, float_zeros);
        if (e.bias) u = plus(u, load(args.bias, desc.n + j));
        t = silu_times(t, u);
      }
      if (e.residual) t = plus(t, load(args.residual, i, j));
      out.element[static_cast<size_t>(i * out.cols + j)] = t;
    }
  }
  return out;
}

Status check_same_order(const VectorView& gate, const VectorView& up) {
  Status s;
  for (int64_t i = 0; s.ok() && i < gate.size; ++i) {
    s = expect(load(gate, i) == load(up, i), "up_weights.g_idx differs from the gate's at {0}", i,
               0);
  }
  return s;
}

}  // namespace

Exact int4_gemm_exact(const Int4GemmDesc& desc, const Int4GemmArgs& args) {
  return desc.activations == Int4Activations::kBF16 ? w4a16(desc, args) : w4a8(desc, args);
}

Status int4_gemm(const Int4GemmDesc& desc, const Int4GemmArgs& args) {
  Status s =
      expect(args.a.cols == desc.k, "a.cols ({0}) must equal desc.k ({1})", args.a.cols, desc.k);
  if (s.ok()) s = check_int4_weights(args.weights, desc);
  if (s.ok() && desc.epilogue.activation == Activation::kSiluMul) {
    s = check_int4_weights(args.up_weights, desc);
    if (s.ok() && desc.act_order) {
      s = check_same_order(args.weights.g_idx, args.up_weights.g_idx);
    }
  }
  if (s.ok()) {
    s = check_epilogue(desc.epilogue, args.a.rows, desc.n, args.c, args.bias, args.residual);
  }
  if (!s.ok()) return s;

  store_output(args.c, int4_gemm_exact(desc, args));
  return s;
}

}  // namespace quern::reference
