#pragma once

#include <string>
#include <vector>

#include "bench/report.h"

namespace quern::bench {

/// A roofline chart of a run as SVG: for each thread count a panel with the bandwidth line, a
/// ceiling for each measured arithmetic peak, and one point per row at (operations per byte, 10^9
/// operations a second). Rows without numbers, operations or bytes have no point; their problems
/// are put into `left_out`.
std::string roofline_svg(const Report& report, std::vector<std::string>* left_out);

}  // namespace quern::bench
