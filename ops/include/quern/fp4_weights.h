#pragma once

#include <cstdint>

#include "quern/tensor_view.h"

namespace quern {
inline namespace v0 {

/// Which scales stand beside e2m1 codes.
enum class Fp4Format : uint8_t {
  kNvfp4 = 0,  ///< e4m3, one for each column and 16 columns of K, and an f32 one for the matrix
  kMxfp4 = 1,  ///< e8m0, one for each column and 32 columns of K (OCP Microscaling formats 1.0)
};

/// How a file means the scale of the whole matrix.
enum class Fp4Global : uint8_t {
  kMultiplier = 0,  ///< ModelOpt's weight_scale_2
  kDivisor = 1,     ///< compressed-tensors' weight_global_scale: 1 / x, rounded to f32, multiplies
};

/// Weights as checkpoints store them.
struct Fp4Weights {
  MatrixView codes;  ///< kU8 [n, ceil(k / 2)]: two codes a byte, the low nibble is the even column
  /// kNvfp4: kE4M3 [n, ceil(k / 16)]; kMxfp4: kE8M0 [n, ceil(k / 32)]. Row-major, not swizzled. A
  /// NaN among them is an error that names its place.
  MatrixView scale;
  VectorView global;  ///< kNvfp4: kF32 [1], finite and positive; kMxfp4: no data, size 0
  Fp4Global global_is = Fp4Global::kMultiplier;  ///< kMxfp4: nothing else
};

}  // namespace v0
}  // namespace quern
