#pragma once

#include <cstdint>

namespace quern {
inline namespace v0 {

/// What multiplies the int8 weights.
enum class Int8Activations : uint8_t {
  kDynamicS8 = 0,  ///< W8A8: A is bf16 or f32 and is quantized per row inside (see quantize_rows.h)
  kS8 = 1,         ///< W8A8: A is s8 already and comes with one scale a row
  kBF16 = 2,       ///< W8A16: A is bf16 and multiplies the exactly decoded weights in f32
};

}  // namespace v0
}  // namespace quern
