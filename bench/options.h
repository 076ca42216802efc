#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/problem_list.h"

namespace quern::bench {

/// The command line.
struct Options {
  std::vector<std::string> problems;  ///< positional problem strings; run just those
  std::vector<std::string> ops;       ///< empty: the default selection
  std::vector<int64_t> rows;
  std::vector<int32_t> threads;  ///< empty: every CPU of the affinity mask
  std::string shapes;
  ColdMode cold = ColdMode::kAuto;
  bool peer = true;
  bool quick = false;
  bool list = false;
  std::string json_path;
  MeasureOptions measure;
  std::vector<std::string> benchmark_flags;  ///< for Google Benchmark, as given
  bool other_output = false;  ///< --benchmark_format: its report replaces our table on stdout

  /// --help: what to print; nothing else is to be done.
  std::optional<std::string> help;
};

/// Throws UsageError that names the switch and what it accepts.
Options parse_options(const std::vector<std::string>& arguments);

/// The problems that the options ask for, in order. Throws UsageError.
std::vector<Problem> problems_of(const Options& options, int cpu_count, IsaLevel isa);

}  // namespace quern::bench
