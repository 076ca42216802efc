#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/report.h"

namespace quern::bench {

/// One problem in two runs.
struct ComparedRow {
  std::string problem;
  double us_a = 0;  ///< 0: no number in that run
  double us_b = 0;
  double percent_a = 0;  ///< of the roof; 0: no roof holds this problem
  double percent_b = 0;
  /// Of the percent of roof, B over A, or of the times, A over B, where a roof is missing: in both
  /// cases > 1 means that B is better. Nothing where a run has no number.
  std::optional<double> ratio;
  double noise = 0;        ///< what the ratio may differ from 1 by without meaning anything
  bool disturbed = false;  ///< others used the CPUs in one of the runs: the noise is not known
  std::string remark;

  bool beyond_noise() const;
};

struct Comparison {
  std::vector<std::string> differences;  ///< between machines and settings, one sentence each
  std::vector<ComparedRow> rows;         ///< in A's order
  std::vector<std::string> only_a;
  std::vector<std::string> only_b;

  /// Rows whose ratio is below `least`, and those that had a number in A and have an error in B.
  std::vector<const ComparedRow*> below(double least) const;
};

/// Rows are matched by their problem; of a problem that is there several times, first with first.
Comparison compare(const Report& a, const Report& b);

/// Both runs, what differs, the rows, and what is in one run only.
std::string to_text(const Comparison& comparison, TextTable::Style style);

}  // namespace quern::bench
