// Stands in for code_listing.cc where Zydis' headers were not found at configure time.
#include "jit/code_listing.h"

namespace quern::jit {

std::string code_listing(const GeneratedCode&) {
  return std::string();
}

}  // namespace quern::jit
