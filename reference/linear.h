#pragma once

#include "quern/status.h"
#include "quern/tensor_view.h"

namespace quern::reference {

/// C[M, n] = A[M, k] * W^T + bias: A f32 or bf16 (every bf16 value as it is, subnormals too), W f32
/// [n, k], bias f32 [n] or null, C f32. Products and sums in double, one rounding at the end.
/// This is what a model's dequantized weights are multiplied with when nothing is to be lost.
struct LinearArgs {
  MatrixView a;
  MatrixView weights;
  VectorView bias;
  MutableMatrixView c;
};
Status linear(const LinearArgs& args);

}  // namespace quern::reference
