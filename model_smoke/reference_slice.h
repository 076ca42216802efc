#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model_smoke/linear.h"
#include "model_smoke/linear_ops.h"
#include "reference/bf16_gemm.h"
#include "reference/fp4_gemm.h"
#include "reference/fp8_gemm.h"
#include "reference/int4_gemm.h"
#include "reference/int8_gemm.h"

namespace quern::smoke {

// Some columns of a linear op as a call of the reference op: every element is computed alone, so
// cutting by columns changes no bit.

/// Elements [first, first + n) of what belongs to the rows of a weight matrix.
inline VectorView slice(VectorView v, int64_t first, int64_t n) {
  if (v.data == nullptr || v.size == 0) return {};
  v.data = static_cast<const std::byte*>(v.data) + static_cast<size_t>(first) * size_of(v.dtype);
  v.size = n;
  return v;
}

/// Columns [first, first + n): `c` and `residual` hold just those.
struct LinearSlice {
  int64_t first = 0, n = 0;
  MatrixView a;
  MutableMatrixView c;
  MatrixView residual;
};

namespace detail {

inline void append_bias(const HostWeights& w, const LinearSlice& s, std::vector<float>& to) {
  if (w.bias.empty()) return;
  to.insert(to.end(), w.bias.begin() + s.first, w.bias.begin() + s.first + s.n);
}

template <typename Desc, typename Args>
void fill(const LinearSource& source, const LinearSlice& s, const std::vector<float>& bias,
          Desc& desc, Args& args) {
  desc.n = s.n;
  desc.k = source.weights.k();
  desc.c = s.c.dtype;
  desc.epilogue = {.bias = !bias.empty(),
                   .activation = source.gated() ? Activation::kSiluMul : Activation::kNone,
                   .residual = source.output.residual};
  args.a = s.a;
  args.c = s.c;
  args.bias = vector_view(bias.data(), static_cast<int64_t>(bias.size()));
  if (source.output.residual) args.residual = s.residual;
}

}  // namespace detail

/// Calls f(desc, args) with the description and operands of the reference op for a slice, bf16,
/// int8, int4, fp8 or fp4 as the weights are stored.
template <typename F>
auto with_reference_op(const LinearSource& source, const LinearSlice& s, F&& f) {
  std::vector<float> bias;
  detail::append_bias(source.weights, s, bias);
  detail::append_bias(source.up, s, bias);
  if (source.weights.int4) {
    Int4GemmDesc desc;
    reference::Int4GemmArgs args;
    detail::fill(source, s, bias, desc, args);
    describe_weights(*source.weights.int4, desc);
    desc.activations = int4_activations(source.mode);
    args.weights = source.weights.int4->columns(s.first, s.n);
    if (source.gated()) args.up_weights = source.up.int4->columns(s.first, s.n);
    return f(desc, args);
  }
  if (source.weights.fp8) {
    Fp8GemmDesc desc;
    reference::Fp8GemmArgs args;
    detail::fill(source, s, bias, desc, args);
    desc.block_n = 1;
    desc.block_k = source.weights.fp8->form.block_k;
    args.weights = source.weights.fp8->rows(s.first, s.n);
    if (source.gated()) args.up_weights = source.up.fp8->rows(s.first, s.n);
    return f(desc, args);
  }
  if (source.weights.fp4) {
    Fp4GemmDesc desc;
    reference::Fp4GemmArgs args;
    detail::fill(source, s, bias, desc, args);
    args.weights = source.weights.fp4->rows(s.first, s.n);
    if (source.gated()) args.up_weights = source.up.fp4->rows(s.first, s.n);
    return f(desc, args);
  }
  if (source.weights.format == ModuleFormat::kInt8) {
    Int8GemmDesc desc;
    reference::Int8GemmArgs args;
    detail::fill(source, s, bias, desc, args);
    desc.activations = int8_activations(source.mode);
    desc.a = DType::kBF16;
    const auto part = [&s](const HostWeights& w) {
      return Int8Weights{.codes = rows_of(w.values.view(), s.first, s.n),
                         .scale = slice(w.scale_view(), s.first, s.n)};
    };
    args.weights = part(source.weights);
    if (source.gated()) args.up_weights = part(source.up);
    return f(desc, args);
  }
  Bf16GemmDesc desc;
  reference::Bf16GemmArgs args;
  detail::fill(source, s, bias, desc, args);
  args.weights = rows_of(source.weights.values.view(), s.first, s.n);
  if (source.gated()) args.up_weights = rows_of(source.up.values.view(), s.first, s.n);
  return f(desc, args);
}

inline constexpr int64_t kSliceColumns = 32;  // whole words of eight int4 columns
inline int64_t column_slices(int64_t n) {
  return (n + kSliceColumns - 1) / kSliceColumns;
}

/// Calls f(slice, first, n) for slices of `columns` columns on the pool's threads.
template <typename F>
void for_column_slices(ThreadPool& pool, int64_t columns, F&& f) {
  LayerExec exec(pool, LayerImpl::kScalar);
  exec.for_each(column_slices(columns), 0, [&](int64_t s, float*) {
    const int64_t first = s * kSliceColumns;
    f(s, first, std::min(kSliceColumns, columns - first));
  });
}

}  // namespace quern::smoke
