#pragma once

#include <cstdint>
#include <vector>

#include "quern/epilogue.h"
#include "reference/exact.h"

namespace quern::reference {

/// Weights whose codes are numbers of their own: W[n, k] = weight[n, k] * scale[n, block of k]. The
/// scale acts on the block's f32 sum.
struct ScaledWeights {
  int64_t n = 0;
  int64_t k = 0;
  int64_t block = 1;           ///< columns of K that share a scale; the last block may be partial
  std::vector<double> weight;  ///< [n, k], each a bf16 value
  std::vector<double> scale;   ///< [n, ceil(k / block)], each an f32 value
};

/// What stands around the product; `up` is null without kSiluMul.
struct ScaledGemm {
  Epilogue epilogue;
  MatrixView a;
  const ScaledWeights* gate = nullptr;
  const ScaledWeights* up = nullptr;
  VectorView bias;
  MatrixView residual;
};

/// Each block is one chain of bf16 dot products, and sum = fma(f32(block sum), scale, sum), blocks
/// ascending; then the epilogue.
Exact scaled_gemm_exact(const ScaledGemm& gemm);

}  // namespace quern::reference
