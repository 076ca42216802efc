#pragma once

#include "model_smoke/layers/exec.h"
#include "quern/tensor_view.h"

namespace quern::smoke {

// The norms of Qwen3.5 and the stateless element-wise layers around them. The model has two norm
// conventions and they must not be mixed up: everything is an offset from one, except the norm
// inside the delta net.

/// y = round(x * rsqrt(mean(x^2) + eps) * (1 + w)) over each vector of x, all in f32, rounded once.
/// w: f32, as long as a vector. y may be x.
void rms_norm(LayerExec& exec, HeadView x, VectorView w, float eps, MutableHeadView y);

/// The whole row is one vector.
inline void rms_norm(LayerExec& exec, MatrixView x, VectorView w, float eps, MutableMatrixView y) {
  rms_norm(exec, heads_of(x, 1, x.cols, 0), w, eps, heads_of(y, 1, y.cols, 0));
}

/// y = round(round(x * rsqrt(mean(x^2) + eps)) * w * silu(z)): plain w, one vector shared by all
/// heads, gate after the norm; the inner rounding is to the activation type, as the model was
/// trained.
void gated_rms_norm(LayerExec& exec, HeadView x, HeadView z, VectorView w, float eps,
                    MutableHeadView y);

/// y = round(silu(gate) * up). y may be gate.
void silu_mul(LayerExec& exec, MatrixView gate, MatrixView up, MutableMatrixView y);

/// y = round(x * factors), a factor (f32) for each column, the product in f32.
void scale_columns(LayerExec& exec, MatrixView x, VectorView factors, MutableMatrixView y);

/// h = round(h + x).
void add_in_place(LayerExec& exec, MutableMatrixView h, MatrixView x);

/// Row t of y = row ids[t] of table (same dtype or bf16 table into f32 y).
void embed(LayerExec& exec, MatrixView table, const int64_t* ids, MutableMatrixView y);

// The same operands in one struct each, for whoever passes an op on.
struct NormArgs {
  HeadView x;
  VectorView w;
  float eps = 0;
  MutableHeadView y;
};
struct GatedNormArgs {
  HeadView x, z;
  VectorView w;
  float eps = 0;
  MutableHeadView y;
};

namespace simd {

// One vector each, bf16, chosen for the CPU at run time; see norm_simd.cc.
void rms_norm_row(const bfloat16* x, const float* w, int64_t n, float eps, bfloat16* y);
void gated_rms_norm_row(const bfloat16* x, const bfloat16* z, const float* w, int64_t n, float eps,
                        bfloat16* y);
void silu_mul_row(const bfloat16* gate, const bfloat16* up, int64_t n, bfloat16* y);

}  // namespace simd
}  // namespace quern::smoke
