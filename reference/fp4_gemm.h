#pragma once

#include "quern/fp4_gemm.h"
#include "reference/exact.h"

namespace quern::reference {

/// As quern::Fp4GemmArgs, with the weights as they are stored. `up_weights` only with kSiluMul,
/// where `weights` is the gate.
struct Fp4GemmArgs {
  MatrixView a;
  Fp4Weights weights;
  Fp4Weights up_weights;
  MutableMatrixView c;
  VectorView bias;
  MatrixView residual;
};

/// The result before the last rounding, and how far a kernel may be from it: everything in double.
///   kNvfp4: code times block scale is a bf16 weight; the bound is that of one f32 chain over all
///           of K, as bf16_gemm's, and of one product with the global scale.
///   kMxfp4: the bound of f32 accumulation within a block of 32 and of one fused multiply-add for
///           each block.
/// The scales have passed the check of fp4_gemm.
Exact fp4_gemm_exact(const Fp4GemmDesc& desc, const Fp4GemmArgs& args);

/// C = the value above, rounded to its type. NaN among the scales of blocks, and a global scale
/// that is no finite positive multiplier, are errors.
Status fp4_gemm(const Fp4GemmDesc& desc, const Fp4GemmArgs& args);

}  // namespace quern::reference
