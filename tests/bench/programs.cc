#include "tests/bench/programs.h"

namespace quern::bench {

std::string bench_program() {
  return QUERN_BENCH_BINARY;
}

std::string report_program() {
  return QUERN_REPORT_BINARY;
}

}  // namespace quern::bench
