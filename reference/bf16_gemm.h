#pragma once

#include "quern/bf16_gemm.h"
#include "reference/exact.h"

namespace quern::reference {

/// As quern::Bf16GemmArgs, with the weights as they are stored: kBF16 [n, k]. `up_weights` only
/// with kSiluMul, where `weights` is the gate.
struct Bf16GemmArgs {
  MatrixView a;
  MatrixView weights;
  MatrixView up_weights;
  MutableMatrixView c;
  VectorView bias;
  MatrixView residual;
};

/// The true values (sum, bias, activation and residual in double) and how far a kernel with f32
/// accumulation may be from them. Operands as in bf16_gemm; args.c is only asked for its type.
Exact bf16_gemm_exact(const Bf16GemmDesc& desc, const Bf16GemmArgs& args);

/// C = the true value, rounded once.
Status bf16_gemm(const Bf16GemmDesc& desc, const Bf16GemmArgs& args);

}  // namespace quern::reference
