#include "tests/support/source_dir.h"

namespace quern::test {

std::string source_dir() {
  return QUERN_SOURCE_DIR;
}

}  // namespace quern::test
