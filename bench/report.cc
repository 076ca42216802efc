#include "bench/report.h"

#include <fmt/format.h>

namespace quern::bench {

std::string to_text(const Report& report, TextTable::Style style) {
  std::string out;
  for (const auto& [key, value] : report.context) out += fmt::format("- {}: {}\n", key, value);
  out += "\n" + roofs_table(report.roofs, style) + "\n";
  if (!report.limits.empty()) out += limits_table(report.limits, style) + "\n";
  out += rows_table(report.rows, report.roofs, report.peer_name, style) + "\n";
  return out + footnotes(report.rows, report.peer_name);
}

}  // namespace quern::bench
