#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/limits.h"
#include "bench/memory_plan.h"
#include "bench/row.h"
#include "bench/table.h"

namespace quern::bench {

/// Everything a run found, and what it takes to make it again.
struct Report {
  std::vector<std::pair<std::string, std::string>> context;  ///< host and build, in print order
  std::string command;                                       ///< as it was given
  std::string started;                                       ///< UTC, "2026-11-30T10:00:00Z"
  std::string cpu;                                           ///< brand string
  std::string level;                                         ///< of the context: what plans may use
  std::string revision;                                      ///< of quern
  std::string peer_name;                                     ///< name and version; empty: no peer
  std::string peer_isa;                                      ///< "row" or "best"
  MemoryPlan memory;
  RoofSet roofs;
  std::vector<LimitCheck> limits;
  std::vector<Row> rows;
};

/// For people: context lines, roofs, rows, footnotes.
std::string to_text(const Report& report, TextTable::Style style);

/// For machines: one JSON object and nothing else. Numbers of a row that failed are absent.
std::string to_json(const Report& report);

/// The inverse of to_json. Throws UsageError that starts with `name` and says which key is wrong,
/// what was expected and what is there.
Report report_from_json(std::string_view text, const std::string& name);

}  // namespace quern::bench
