#pragma once

#include "quern/epilogue.h"
#include "quern/status.h"
#include "quern/tensor_view.h"

/// The few rules without which the loops would read outside the operands.
namespace quern::reference {

inline Status expect(bool holds, const char* text, int64_t v0, int64_t v1) {
  return holds ? Status() : Status(StatusCode::kInvalidArgument, text, v0, v1);
}

/// bias [n] or [2 n], residual [M, n] of C's type, C [M, n] in bf16 or f32.
inline Status check_epilogue(const Epilogue& e, int64_t m, int64_t n, const MutableMatrixView& c,
                             const VectorView& bias, const MatrixView& residual) {
  const int64_t parts = e.activation == Activation::kSiluMul ? 2 : 1;
  Status s = expect(c.rows == m, "c.rows ({0}) must equal a.rows ({1})", c.rows, m);
  if (s.ok()) s = expect(c.cols == n, "c.cols ({0}) must equal desc.n ({1})", c.cols, n);
  if (s.ok() && e.bias) {
    s = expect(bias.size == parts * n, "bias.size ({0}) must be {1}", bias.size, parts * n);
  }
  if (s.ok() && e.residual) {
    s = expect(residual.rows == m && residual.cols == n && residual.dtype == c.dtype,
               "residual ({0} x {1}) must have the shape and type of c", residual.rows,
               residual.cols);
  }
  return s;
}

}  // namespace quern::reference
