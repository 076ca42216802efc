#pragma once

#include <cstdint>

#include "quern/dtype.h"

namespace quern::jit {

/// The bits of a code of kE4M3, kE5M2 or kE2M1 as bf16, which holds each exactly; NaNs are quiet.
uint16_t bf16_of_code(DType type, int code);

}  // namespace quern::jit
