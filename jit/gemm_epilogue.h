#pragma once

#include <string>

#include "quern/dtype.h"
#include "quern/epilogue.h"

namespace quern::jit {

/// The part of a GEMM kernel's Config that shapes what follows the last dot product.
struct GemmEpilogue {
  DType c = DType::kBF16;  ///< kBF16 or kF32
  bool bias = false;
  Activation activation = Activation::kNone;
  bool residual = false;

  auto operator<=>(const GemmEpilogue&) const = default;
};

/// "epi=none" or "epi=bias+silu_mul+residual"; the dtype is in the kernel name's triple.
std::string epilogue_name(const GemmEpilogue& epilogue);
/// The inverse for everything but `c`. False where the text is not one.
bool parse_epilogue(const std::string& text, GemmEpilogue* epilogue);

/// The rules every GEMM micro-kernel's Config keeps; `others` counts the vector registers its K
/// loop needs besides the mr * nr accumulators. Null where all hold, else the text of the broken
/// one.
const char* invalid_shape(int mr, int nr, int others, int prefetch, const GemmEpilogue& epilogue);

}  // namespace quern::jit
