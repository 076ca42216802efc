#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/row.h"
#include "bench/table.h"

namespace quern::bench {

/// Everything a run found.
struct Report {
  std::vector<std::pair<std::string, std::string>> context;  ///< host and build, in print order
  std::map<int, RoofPair> roofs;
  std::vector<Row> rows;
  std::string peer_name;  ///< empty: no peer
};

/// For people: context lines, roofs, rows, footnotes.
std::string to_text(const Report& report);

/// For machines: one JSON object and nothing else. Numbers of a row that failed are absent.
std::string to_json(const Report& report);

}  // namespace quern::bench
