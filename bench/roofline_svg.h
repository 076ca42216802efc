#pragma once

#include <string>
#include <vector>

#include "bench/report.h"

namespace quern::bench {

/// A roofline chart of a run as SVG: for each thread count a panel with the bandwidth line, a
/// ceiling for each measured arithmetic peak, and one point per row at (operations per byte, 10^9
/// operations a second). `left_out` gets "problem: why" for each row that has no point: it failed,
/// or its op does no arithmetic that a peak is measured for (quantize_rows).
std::string roofline_svg(const Report& report, std::vector<std::string>* left_out);

}  // namespace quern::bench
