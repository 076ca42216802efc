#pragma once

#include <cstdint>

namespace quern::smoke {

enum class Verdict : uint8_t { kEqual, kWithinBound, kDiffers };
const char* to_string(Verdict verdict) noexcept;

/// One output of an op, element by element, against the reference op on the same inputs.
struct Comparison {
  struct Element {
    int64_t row = 0, col = 0;
    double got = 0;
    double expected = 0;  ///< the reference, rounded to the type of the output
    double distance = 0;  ///< between the two
    double allowed = 0;   ///< the farthest that the bound lets a right kernel be
  };

  int64_t elements = 0;
  int64_t unequal = 0;  ///< other bits than expected
  int64_t outside = 0;  ///< more than is allowed
  Element worst;        ///< uses up the most of what it is allowed; only where unequal > 0

  Verdict verdict() const noexcept;
  void merge(const Comparison& other) noexcept;
};

}  // namespace quern::smoke
