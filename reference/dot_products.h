#pragma once

#include <cstdint>
#include <vector>

#include "quern/tensor_view.h"

namespace quern::reference {

/// A * W^T for A [M, k] and W [n, k], before any epilogue; row-major [M, n].
struct DotProducts {
  std::vector<double> value;      ///< sum of a * w
  std::vector<double> magnitude;  ///< sum of |a * w|, what error bounds are made of
};

/// Accumulates in double. bf16 elements follow the rule of the bf16 dot product (subnormals count
/// as zero); s8 and f32 elements are taken as they are. Products of bf16 and s8 are exact in
/// double, so the only error is the 2^-53 of each addition.
DotProducts dot_products(const MatrixView& a, const MatrixView& w);

/// One row as operands of a dot product.
std::vector<double> operand_row(const MatrixView& m, int64_t row);

}  // namespace quern::reference
