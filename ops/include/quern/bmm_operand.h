#pragma once

#include <cstdint>

namespace quern {
inline namespace v0 {

/// What bmm's B is.
enum class BmmOperand : uint8_t {
  kBF16 = 0,     ///< packed bf16
  kS8 = 1,       ///< packed s8 with scales
  kPlainNK = 2,  ///< bf16 [batch, n, k] as it lies in memory, packed into scratch by every run
  kPlainKN = 3,  ///< bf16 [batch, k, n] likewise
  kE4M3 = 4,     ///< packed e4m3 with scales
};

}  // namespace v0
}  // namespace quern
