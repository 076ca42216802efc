#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/peer.h"
#include "bench/problem_list.h"

namespace quern::bench {

/// The command line.
struct Options {
  std::string command;                ///< as it was given, in one line
  std::vector<std::string> problems;  ///< positional problem strings; run just those
  std::vector<std::string> ops;       ///< empty: the default selection
  std::vector<int64_t> rows;
  std::vector<int64_t> batches;                ///< of bmm; empty: the default
  std::optional<int64_t> group;                ///< of int4_gemm; 0: all of K
  std::optional<Int8Activations> activations;  ///< of int8_gemm and int4_gemm
  std::vector<int32_t> threads;                ///< empty: every CPU of the affinity mask
  std::string shapes;
  ColdMode cold = ColdMode::kAuto;
  IsaLevel isa = IsaLevel::kNone;  ///< kNone: auto, the level that the plan chooses
  bool peer = true;
  PeerIsa peer_isa = PeerIsa::kRow;
  std::string limits;  ///< file or command to compare the roofs with; empty: none
  bool quick = false;
  bool list = false;
  bool static_model = false;  ///< --static: `problems` are names of kernels, none: the default ones
  std::string json_path;
  MeasureOptions measure;
  std::vector<std::string> benchmark_flags;  ///< for Google Benchmark, as given
  bool other_output = false;  ///< --benchmark_format: its report replaces our table on stdout

  /// --help: what to print; nothing else is to be done.
  std::optional<std::string> help;
};

/// Throws UsageError that names the switch and what it accepts.
Options parse_options(const std::vector<std::string>& arguments);

/// The problems that the options ask for, in order; the level is kNone where they leave it open.
/// Throws UsageError.
std::vector<Problem> problems_of(const Options& options, int cpu_count);

}  // namespace quern::bench
