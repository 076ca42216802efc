#pragma once

#include "quern/int4_gemm.h"
#include "reference/exact.h"

namespace quern::reference {

/// As quern::Int4GemmArgs, with the weights as they are stored. `up_weights` only with kSiluMul,
/// where `weights` is the gate; with act_order both have the same g_idx.
struct Int4GemmArgs {
  MatrixView a;
  Int4Weights weights;
  Int4Weights up_weights;
  MutableMatrixView c;
  VectorView bias;
  MatrixView residual;
};

/// The result before the last rounding, and how far a kernel may be from it.
///   W4A8:  rows are quantized; the sum of each group is an exact integer and its scale acts by one
///          fused multiply-add, groups ascending. The bound is 0: every kernel must give the same
///          bits. With kSiluMul the activation is exact and the bound is that of silu.
///   W4A16: everything in double, with the bound of f32 accumulation within a group and of one
///          fused multiply-add for each group.
Exact int4_gemm_exact(const Int4GemmDesc& desc, const Int4GemmArgs& args);

/// C = the value above, rounded to its type.
Status int4_gemm(const Int4GemmDesc& desc, const Int4GemmArgs& args);

}  // namespace quern::reference
