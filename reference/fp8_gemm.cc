#include "reference/fp8_gemm.h"

#include <algorithm>
#include <array>

#include "reference/scaled_weights.h"
#include "reference/shape_check.h"

namespace quern::reference {
namespace {

struct Grid {
  int64_t block_n;
  int64_t block_k;
  int64_t rows;
  int64_t cols;
};

Grid grid_of(const Fp8GemmDesc& desc) {
  Grid g;
  g.block_n = desc.block_n < 0 ? std::max<int64_t>(desc.n, 1) : desc.block_n;
  g.block_k = desc.block_k < 0 ? std::max<int64_t>(desc.k, 1) : desc.block_k;
  g.rows = (desc.n + g.block_n - 1) / g.block_n;
  g.cols = (desc.k + g.block_k - 1) / g.block_k;
  return g;
}

ScaledWeights decoded(const Fp8Weights& w, const Fp8GemmDesc& desc) {
  std::array<double, 256> value;
  for (int code = 0; code < 256; ++code) {
    const uint8_t byte = static_cast<uint8_t>(code);
    value[byte] = desc.weights == DType::kE4M3 ? e4m3_to_double(byte) : decode(kFormatE5M2, byte);
  }
  const Grid grid = grid_of(desc);
  ScaledWeights out{desc.n, desc.k, grid.block_k, {}, {}};
  for (int64_t n = 0; n < desc.n; ++n) {
    const uint8_t* row = static_cast<const uint8_t*>(w.codes.data) + n * w.codes.row_stride;
    for (int64_t k = 0; k < desc.k; ++k) out.weight.push_back(value[row[k]]);
    for (int64_t b = 0; b < grid.cols; ++b) {
      out.scale.push_back(load(w.scale, n / grid.block_n, b));
    }
  }
  return out;
}

Status check_weights(const Fp8Weights& w, const Fp8GemmDesc& desc) {
  Status s = expect(w.codes.rows == desc.n && w.codes.cols == desc.k,
                    "weights.codes must be [desc.n ({0}), desc.k ({1})]", desc.n, desc.k);
  if (s.ok()) {
    s = expect(w.codes.dtype == desc.weights,
               "weights.codes.dtype ({0:dtype}) must equal desc.weights ({1:dtype})",
               static_cast<int64_t>(w.codes.dtype), static_cast<int64_t>(desc.weights));
  }
  const Grid grid = grid_of(desc);
  if (s.ok()) {
    s = expect(w.scale.data || grid.rows * grid.cols == 0,
               "weights.scale is missing: codes without a scale are no weights", 0, 0);
  }
  if (s.ok()) {
    s = expect(w.scale.rows == grid.rows && w.scale.cols == grid.cols,
               "weights.scale must be [{0}, {1}]: one for each block", grid.rows, grid.cols);
  }
  if (s.ok()) {
    const DType t = w.scale.dtype;
    s = expect(t == DType::kF32 || t == DType::kBF16 || t == DType::kF16,
               "weights.scale.dtype ({0:dtype}) must be f32, bf16 or f16", static_cast<int64_t>(t),
               0);
  }
  return s;
}

}  // namespace

Exact fp8_gemm_exact(const Fp8GemmDesc& desc, const Fp8GemmArgs& args) {
  const bool silu_mul = desc.epilogue.activation == Activation::kSiluMul;
  const ScaledWeights gate = decoded(args.weights, desc);
  const ScaledWeights up = silu_mul ? decoded(args.up_weights, desc) : ScaledWeights();
  return scaled_gemm_exact(
      {desc.epilogue, args.a, &gate, silu_mul ? &up : nullptr, args.bias, args.residual});
}

Status fp8_gemm(const Fp8GemmDesc& desc, const Fp8GemmArgs& args) {
  Status s = expect(desc.weights == DType::kE4M3 || desc.weights == DType::kE5M2,
                    "desc.weights ({0:dtype}) must be e4m3 or e5m2",
                    static_cast<int64_t>(desc.weights), 0);
  for (const int64_t block : {desc.block_n, desc.block_k}) {
    if (s.ok()) {
      s = expect(block >= 1 || block == -1, "a block of {0} must be at least 1, or -1 for all",
                 block, 0);
    }
  }
  if (s.ok()) {
    s = expect(args.a.cols == desc.k, "a.cols ({0}) must equal desc.k ({1})", args.a.cols, desc.k);
  }
  if (s.ok()) s = check_weights(args.weights, desc);
  if (s.ok() && desc.epilogue.activation == Activation::kSiluMul) {
    s = check_weights(args.up_weights, desc);
  }
  if (s.ok()) {
    s = check_epilogue(desc.epilogue, args.a.rows, desc.n, args.c, args.bias, args.residual);
  }
  if (!s.ok()) return s;

  store_output(args.c, fp8_gemm_exact(desc, args));
  return s;
}

}  // namespace quern::reference
