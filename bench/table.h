#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/roofline.h"
#include "bench/row.h"

namespace quern::bench {

/// A markdown table whose columns line up when it is read as text.
class MarkdownTable {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit MarkdownTable(std::vector<Column> columns);
  /// As many cells as there are columns. A '|' in a cell is escaped.
  void add(std::vector<std::string> cells);
  std::string str() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Roofs of a thread count at the beginning and at the end of a run.
struct RoofPair {
  Roofs before;
  Roofs after;
};

/// Four significant digits, never an exponent: "0.7312", "12.34", "1300", "23570".
std::string format_number(double value);

/// The rows: problem, kernel, us, GOP/s or GB/s, percent of the roof that binds, the peer, the
/// ratio, verified, remarks. A row with an error shows it in place of every number.
std::string rows_table(const std::vector<Row>& rows, const std::map<int, RoofPair>& roofs,
                       const std::string& peer_name);

/// The roofs, with a sentence for each that moved by more than 5 % between beginning and end.
std::string roofs_table(const std::map<int, RoofPair>& roofs);

/// What a reader must know to read rows_table.
std::string footnotes(const std::vector<Row>& rows, const std::string& peer_name);

}  // namespace quern::bench
