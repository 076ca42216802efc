#include "reference/fp4_gemm.h"

#include <algorithm>
#include <cmath>

#include "reference/scaled_weights.h"
#include "reference/shape_check.h"

namespace quern::reference {
namespace {

int64_t block_of(Fp4Format format) {
  return format == Fp4Format::kNvfp4 ? 16 : 32;
}

float multiplier(const Fp4Weights& w) {
  const float stored = static_cast<float>(load(w.global, 0));
  return w.global_is == Fp4Global::kDivisor ? 1.0f / stored : stored;
}

ScaledWeights decoded(const Fp4Weights& w, const Fp4GemmDesc& desc) {
  const bool nvfp4 = desc.format == Fp4Format::kNvfp4;
  const int64_t block = block_of(desc.format);
  ScaledWeights out{desc.n, desc.k, nvfp4 ? std::max<int64_t>(desc.k, 1) : block, {}, {}};
  for (int64_t n = 0; n < desc.n; ++n) {
    for (int64_t k = 0; k < desc.k; ++k) {
      const int pair = static_cast<int>(load(w.codes, n, k / 2));
      const double code = e2m1_to_double(static_cast<uint8_t>(k % 2 ? pair >> 4 : pair & 15));
      out.weight.push_back(nvfp4 ? code * load(w.scale, n, k / block) : code);
    }
    if (nvfp4) {
      if (desc.k > 0) out.scale.push_back(multiplier(w));
    } else {
      for (int64_t b = 0; b < w.scale.cols; ++b) out.scale.push_back(load(w.scale, n, b));
    }
  }
  return out;
}

Status check_global(const Fp4Weights& w, const Fp4GemmDesc& desc) {
  if (desc.format == Fp4Format::kMxfp4) {
    const bool none = !w.global.data && w.global.size == 0 && w.global_is == Fp4Global::kMultiplier;
    return expect(none, "weights.global is not part of mxfp4", 0, 0);
  }
  Status s = expect(w.global.data && w.global.size == 1 && w.global.dtype == DType::kF32,
                    "weights.global must be f32 [1]", 0, 0);
  if (s.ok()) {
    const double stored = load(w.global, 0);
    s = expect(std::isfinite(stored) && stored > 0 && std::isfinite(multiplier(w)),
               "weights.global must be a finite positive multiplier", 0, 0);
  }
  return s;
}

Status check_weights(const Fp4Weights& w, const Fp4GemmDesc& desc) {
  const int64_t bytes = (desc.k + 1) / 2;
  const int64_t block = block_of(desc.format), blocks = (desc.k + block - 1) / block;
  const DType type = desc.format == Fp4Format::kNvfp4 ? DType::kE4M3 : DType::kE8M0;
  Status s = expect(w.codes.rows == desc.n && w.codes.cols == bytes,
                    "weights.codes must be [desc.n ({0}), {1}]: two codes a byte", desc.n, bytes);
  if (s.ok()) {
    s = expect(w.codes.dtype == DType::kU8, "weights.codes.dtype ({0:dtype}) must be u8",
               static_cast<int64_t>(w.codes.dtype), 0);
  }
  if (s.ok()) {
    s = expect(w.scale.data || desc.n * blocks == 0,
               "weights.scale is missing: codes without a scale are no weights", 0, 0);
  }
  if (s.ok()) {
    s = expect(w.scale.rows == desc.n && w.scale.cols == blocks,
               "weights.scale must be [desc.n ({0}), {1}]", desc.n, blocks);
  }
  if (s.ok()) {
    s = expect(w.scale.dtype == type, "weights.scale.dtype ({0:dtype}) must be {1:dtype}",
               static_cast<int64_t>(w.scale.dtype), static_cast<int64_t>(type));
  }
  for (int64_t n = 0; n < desc.n; ++n) {
    for (int64_t b = 0; s.ok() && b < blocks; ++b) {
      s = expect(!std::isnan(load(w.scale, n, b)), "weights.scale is NaN at [{0}, {1}]", n, b);
    }
  }
  if (s.ok()) s = check_global(w, desc);
  return s;
}

}  // namespace

Exact fp4_gemm_exact(const Fp4GemmDesc& desc, const Fp4GemmArgs& args) {
  const bool silu_mul = desc.epilogue.activation == Activation::kSiluMul;
  const ScaledWeights gate = decoded(args.weights, desc);
  const ScaledWeights up = silu_mul ? decoded(args.up_weights, desc) : ScaledWeights();
  return scaled_gemm_exact(
      {desc.epilogue, args.a, &gate, silu_mul ? &up : nullptr, args.bias, args.residual});
}

Status fp4_gemm(const Fp4GemmDesc& desc, const Fp4GemmArgs& args) {
  Status s =
      expect(args.a.cols == desc.k, "a.cols ({0}) must equal desc.k ({1})", args.a.cols, desc.k);
  if (s.ok()) s = check_weights(args.weights, desc);
  if (s.ok() && desc.epilogue.activation == Activation::kSiluMul) {
    s = check_weights(args.up_weights, desc);
  }
  if (s.ok()) {
    s = check_epilogue(desc.epilogue, args.a.rows, desc.n, args.c, args.bias, args.residual);
  }
  if (!s.ok()) return s;

  store_output(args.c, fp4_gemm_exact(desc, args));
  return s;
}

}  // namespace quern::reference
