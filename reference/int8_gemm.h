#pragma once

#include "quern/int8_gemm.h"
#include "reference/exact.h"

namespace quern::reference {

/// As quern::Int8GemmArgs, with the weights as they are stored. `up_weights` only with kSiluMul,
/// where `weights` is the gate.
struct Int8GemmArgs {
  MatrixView a;
  VectorView a_scale;
  Int8Weights weights;
  Int8Weights up_weights;
  MutableMatrixView c;
  VectorView bias;
  MatrixView residual;
};

/// The result before the last rounding, and how far a kernel may be from it.
///   W8A8: integer sum, then the f32 steps of quern/epilogue.h: the bound is 0, every kernel must
///         give the same bits. With kSiluMul the activation is exact and the bound is that of silu.
///   W8A16: everything in double, with the bound of f32 accumulation.
Exact int8_gemm_exact(const Int8GemmDesc& desc, const Int8GemmArgs& args);

/// C = the value above, rounded to its type.
Status int8_gemm(const Int8GemmDesc& desc, const Int8GemmArgs& args);

}  // namespace quern::reference
