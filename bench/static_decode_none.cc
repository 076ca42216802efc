// Stands in for static_decode.cc where Zydis was not found at configure time.
#include <stdexcept>

#include "bench/static_code.h"

namespace quern::bench {

bool can_decode() {
  return false;
}

std::vector<CodeInstruction> decode(const jit::GeneratedCode&) {
  throw std::runtime_error("code cannot be read: quern-bench was built without Zydis 4");
}

}  // namespace quern::bench
