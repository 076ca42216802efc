#pragma once

#include "quern/fp8_gemm.h"
#include "reference/exact.h"

namespace quern::reference {

/// As quern::Fp8GemmArgs, with the weights as they are stored. `up_weights` only with kSiluMul,
/// where `weights` is the gate.
struct Fp8GemmArgs {
  MatrixView a;
  Fp8Weights weights;
  Fp8Weights up_weights;
  MutableMatrixView c;
  VectorView bias;
  MatrixView residual;
};

/// The result before the last rounding, and how far a kernel may be from it: everything in double,
/// with the bound of f32 accumulation within a block of K and of one fused multiply-add for each
/// block.
Exact fp8_gemm_exact(const Fp8GemmDesc& desc, const Fp8GemmArgs& args);

/// C = the value above, rounded to its type.
Status fp8_gemm(const Fp8GemmDesc& desc, const Fp8GemmArgs& args);

}  // namespace quern::reference
