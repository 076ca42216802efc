#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/roofline.h"
#include "bench/row.h"
#include "bench/text_table.h"

namespace quern::bench {

/// Roofs of a thread count at the beginning and at the end of a run.
struct RoofPair {
  Roofs before;
  Roofs after;
};

/// The roofs of a run. More threads than CPUs are held to those of all CPUs: taking turns makes
/// nothing faster, and measuring them would take minutes.
struct RoofSet {
  int cpus = 1;
  std::map<int, RoofPair> of_threads;

  /// What a row with this many threads is held to; zeros where nothing was measured.
  Roofs of(int threads) const;
  /// The key of `of_threads`.
  int key(int threads) const;
};

/// The floor of a row under the roofs of its thread count.
Floor floor_of(const Row& row, const RoofSet& roofs);

/// Four significant digits, never an exponent: "0.7312", "12.34", "1300", "23570".
std::string format_number(double value);

/// The rows: problem, kernel, us, GOP/s or GB/s, percent of the roof that binds, the peer, the
/// ratio, verified, remarks. A row with an error shows it in place of every number.
std::string rows_table(const std::vector<Row>& rows, const RoofSet& roofs,
                       const std::string& peer_name, TextTable::Style style);

/// The roofs, with a sentence for each that moved by more than 5 % between beginning and end.
std::string roofs_table(const RoofSet& roofs, TextTable::Style style);

/// What a reader must know to read rows_table.
std::string footnotes(const std::vector<Row>& rows, const std::string& peer_name);

}  // namespace quern::bench
