#pragma once

#include <string>

namespace quern::bench {

// The programs as they were built.
std::string bench_program();
std::string report_program();

}  // namespace quern::bench
