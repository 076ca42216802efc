#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model_smoke/safetensors.h"

namespace quern::smoke {

/// Index of the first element that is NaN or infinite, -1 when all are finite. Integers and the
/// 4- and 6-bit floats have no such values.
int64_t first_non_finite(const TensorView& tensor) noexcept;

/// More than one element, and all have the same bytes. Sub-byte types are never called constant.
bool is_constant(const TensorView& tensor) noexcept;

/// One element for a message: "NaN", "-3.5", "17"; the bytes in hexadecimal for exotic types.
std::string value_text(const TensorView& tensor, int64_t index);

/// F32, BF16 and F16 tensors as f32, in order. Any other dtype throws InputError.
std::vector<float> to_f32(const TensorView& tensor);

}  // namespace quern::smoke
