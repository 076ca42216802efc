#include "quern/isa.h"

namespace quern::inline v0 {

const char* to_string(IsaLevel level) noexcept {
  switch (level) {
    case IsaLevel::kNone:
      return "none";
    case IsaLevel::kAvx512:
      return "avx512";
    case IsaLevel::kAmx:
      return "amx";
  }
  return "?";
}

}  // namespace quern::inline v0
