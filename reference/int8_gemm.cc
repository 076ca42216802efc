#include "reference/int8_gemm.h"

#include "reference/dot_products.h"
#include "reference/quantize_rows.h"
#include "reference/shape_check.h"

namespace quern::reference {
namespace {

/// Row `i` of A as signed bytes, with its scale.
QuantizedRow quantized_row(const Int8GemmDesc& desc, const Int8GemmArgs& args, int64_t i) {
  if (desc.activations == Int8Activations::kDynamicS8) return quantize_row(args.a, i);
  QuantizedRow row;
  for (int64_t p = 0; p < desc.k; ++p) row.q.push_back(static_cast<int8_t>(load(args.a, i, p)));
  row.scale = static_cast<float>(load(args.a_scale, i));
  return row;
}

int64_t integer_dot(const std::vector<int8_t>& a, const int8_t* w) {
  int64_t sum = 0;
  for (size_t p = 0; p < a.size(); ++p) sum += int32_t{a[p]} * int32_t{w[p]};
  return sum;
}

/// f32(acc) * (s_row * s_col) + bias, each step one f32 operation.
float scaled(int64_t acc, float s_row, float s_col, const float* bias) {
  float t = static_cast<float>(acc) * (s_row * s_col);
  if (bias) t = t + *bias;
  return t;
}

Exact w8a8(const Int8GemmDesc& desc, const Int8GemmArgs& args) {
  const Epilogue& e = desc.epilogue;
  const bool silu_mul = e.activation == Activation::kSiluMul;
  Exact out{args.a.rows, desc.n, {}};
  out.element.resize(static_cast<size_t>(out.rows * out.cols));
  std::vector<QuantizedRow> rows;
  for (int64_t i = 0; i < out.rows; ++i) rows.push_back(quantized_row(desc, args, i));

  const auto part = [&](const Int8Weights& w, int64_t i, int64_t j, int64_t bias_at) {
    const QuantizedRow& row = rows[static_cast<size_t>(i)];
    const int8_t* codes = static_cast<const int8_t*>(w.codes.data) + j * w.codes.row_stride;
    const float bias = e.bias ? static_cast<float>(load(args.bias, bias_at)) : 0.0f;
    return scaled(integer_dot(row.q, codes), row.scale, static_cast<float>(load(w.scale, j)),
                  e.bias ? &bias : nullptr);
  };
  for (int64_t j = 0; j < out.cols; ++j) {
    for (int64_t i = 0; i < out.rows; ++i) {
      const float t = part(args.weights, i, j, j);
      Bounded r{t, 0};
      if (silu_mul) {
        r = silu_times({t, 0}, {part(args.up_weights, i, j, desc.n + j), 0});
        if (e.residual) r = plus(r, load(args.residual, i, j));
      } else if (e.residual) {
        r.value = t + static_cast<float>(load(args.residual, i, j));
      }
      out.element[static_cast<size_t>(i * out.cols + j)] = r;
    }
  }
  return out;
}

Exact w8a16(const Int8GemmDesc& desc, const Int8GemmArgs& args) {
  const Epilogue& e = desc.epilogue;
  const bool silu_mul = e.activation == Activation::kSiluMul;
  const DotProducts gate = dot_products(args.a, args.weights.codes);
  const DotProducts up = silu_mul ? dot_products(args.a, args.up_weights.codes) : DotProducts();
  Exact out{args.a.rows, desc.n, {}};
  out.element.resize(static_cast<size_t>(out.rows * out.cols));
  for (int64_t i = 0; i < out.rows; ++i) {
    for (int64_t j = 0; j < out.cols; ++j) {
      const size_t at = static_cast<size_t>(i * out.cols + j);
      Bounded t =
          times(f32_chain(gate.value[at], gate.magnitude[at], desc.k), load(args.weights.scale, j));
      if (e.bias) t = plus(t, load(args.bias, j));
      if (silu_mul) {
        Bounded u = times(f32_chain(up.value[at], up.magnitude[at], desc.k),
                          load(args.up_weights.scale, j));
        if (e.bias) u = plus(u, load(args.bias, desc.n + j));
        t = silu_times(t, u);
      }
      if (e.residual) t = plus(t, load(args.residual, i, j));
      out.element[at] = t;
    }
  }
  return out;
}

Status check_weights(const Int8Weights& w, const Int8GemmDesc& desc) {
  const Status s =
      expect(w.codes.rows == desc.n && w.codes.cols == desc.k && w.codes.dtype == DType::kS8,
             "weights.codes must be s8 [desc.n ({0}), desc.k ({1})]", desc.n, desc.k);
  if (!s.ok()) return s;
  return expect(w.scale.size == desc.n, "weights.scale.size ({0}) must equal desc.n ({1})",
                w.scale.size, desc.n);
}

}  // namespace

Exact int8_gemm_exact(const Int8GemmDesc& desc, const Int8GemmArgs& args) {
  return desc.activations == Int8Activations::kBF16 ? w8a16(desc, args) : w8a8(desc, args);
}

Status int8_gemm(const Int8GemmDesc& desc, const Int8GemmArgs& args) {
  Status s =
      expect(args.a.cols == desc.k, "a.cols ({0}) must equal desc.k ({1})", args.a.cols, desc.k);
  if (s.ok() && desc.activations == Int8Activations::kS8) {
    s = expect(args.a_scale.size == args.a.rows, "a_scale.size ({0}) must equal a.rows ({1})",
               args.a_scale.size, args.a.rows);
  }
  if (s.ok()) s = check_weights(args.weights, desc);
  if (s.ok() && desc.epilogue.activation == Activation::kSiluMul) {
    s = check_weights(args.up_weights, desc);
  }
  if (s.ok()) {
    s = check_epilogue(desc.epilogue, args.a.rows, desc.n, args.c, args.bias, args.residual);
  }
  if (!s.ok()) return s;

  store_output(args.c, int8_gemm_exact(desc, args));
  return s;
}

}  // namespace quern::reference
