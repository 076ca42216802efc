#include "bench/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "bench/usage_error.h"

namespace quern::bench {
namespace {

constexpr const char* kFooter =
    "Problem strings may be given instead of a selection, as any table or verbose line shows "
    "them:\n"
    "  quern-bench --verify int8_gemm/m:1/n:4096/k:4096/thr:2/cold:1\n"
    "Switches of Google Benchmark (--benchmark_filter=REGEX, --benchmark_format=json, ...) work "
    "too.\n"
    "Results go to standard output, everything else to standard error.\n"
    "Exit code: 0 measured, 1 a check failed or a problem was refused, 2 wrong usage.";

const std::map<std::string, ColdMode> kColdModes = {
    {"auto", ColdMode::kAuto}, {"0", ColdMode::kHot}, {"1", ColdMode::kCold}};

/// Takes out what belongs to Google Benchmark, and turns --verify=PROBLEM, as failed tests print
/// it, into the two words it means.
std::vector<std::string> split(const std::vector<std::string>& arguments, Options* options) {
  std::vector<std::string> own;
  for (const std::string& argument : arguments) {
    if (argument.rfind("--benchmark_", 0) == 0) {
      options->benchmark_flags.push_back(argument);
      if (argument.rfind("--benchmark_format", 0) == 0) options->other_output = true;
      if (argument.rfind("--benchmark_list_tests", 0) == 0) options->other_output = true;
    } else if (argument.rfind("--verify=", 0) == 0) {
      own.push_back("--verify");
      own.push_back(argument.substr(argument.find('=') + 1));
    } else {
      own.push_back(argument);
    }
  }
  return own;
}

void check(const Options& options) {
  for (int64_t m : options.rows) {
    if (m < 0 || m > (int64_t{1} << 28)) {
      throw UsageError(fmt::format("--m {}: expected 0 to {}", m, int64_t{1} << 28));
    }
  }
  for (int32_t t : options.threads) {
    if (t < 1 || t > 1024) throw UsageError(fmt::format("--threads {}: expected 1 to 1024", t));
  }
  const bool selects = !options.ops.empty() || !options.shapes.empty() || !options.rows.empty();
  if (!options.problems.empty() && (selects || options.quick)) {
    throw UsageError(
        "problem strings and a selection (--ops, --shapes, --m, --quick) exclude each other");
  }
  if (options.quick && selects) {
    throw UsageError("--quick has its own problems; leave out --ops, --shapes and --m");
  }
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  std::string peer = "onednn";
  const std::vector<std::string> own = split(arguments, &options);

  CLI::App app(
      "Times quern's ops and holds each against the measured limits of this machine and "
      "against oneDNN.",
      "quern-bench");
  app.footer(kFooter);
  app.add_option("problems", options.problems, "Problem strings to run");
  app.add_option("--shapes", options.shapes,
                 "NxK[,NxK...], a file of 'N x K' lines, or qwen3_5, deepseek_v3, edges");
  app.add_option("--ops", options.ops, "int8_gemm, bf16_gemm, quantize_rows")
      ->delimiter(',')
      ->check(CLI::IsMember({"int8_gemm", "bf16_gemm", "quantize_rows"}));
  app.add_option("--m", options.rows, "Row counts")->delimiter(',');
  app.add_option("--threads", options.threads, "Thread counts; default all CPUs")->delimiter(',');
  app.add_option("--cold", options.cold,
                 "auto (up to 16 rows), 0, 1: rotate among weight copies larger than any cache")
      ->transform(CLI::Transformer(kColdModes))
      ->option_text("auto|0|1");
  app.add_option("--peer", peer, "Library to compare with")
      ->check(CLI::IsMember({"onednn", "none"}))
      ->option_text("onednn|none");
  app.add_flag("--verify", options.measure.verify, "Check each result against the reference first");
  app.add_flag("--quick", options.quick, "A representative dozen, verified, within a minute");
  app.add_flag("--list", options.list, "Print the problem strings and stop");
  app.add_option("--json", options.json_path, "Also write the report to this file as JSON");
  app.add_option("--min-time", options.measure.budget.seconds, "Seconds of a block of calls")
      ->check(CLI::Range(0.001, 60.0));
  app.add_option("--alternations", options.measure.alternations,
                 "Blocks of ours and of the peer's in turn")
      ->check(CLI::Range(1, 1000));
  try {
    app.parse(std::vector<std::string>(own.rbegin(), own.rend()));
  } catch (const CLI::CallForHelp&) {
    options.help = app.help();
    return options;
  } catch (const CLI::ParseError& e) {
    throw UsageError(std::string(e.what()) + "; see quern-bench --help");
  }
  options.peer = peer == "onednn";
  if (options.quick) {
    options.measure.verify = true;
    options.measure.tries = 1;
  }
  check(options);
  return options;
}

std::vector<Problem> problems_of(const Options& options, int cpu_count, IsaLevel isa) {
  Selection selection;
  selection.isa = isa;
  selection.cold = options.cold;
  selection.threads = {cpu_count};
  if (!options.threads.empty()) selection.threads = options.threads;
  if (!options.problems.empty()) {
    return parse_problems(options.problems, selection.threads.front(), isa);
  }
  if (options.quick) {
    std::vector<Problem> problems;
    for (int32_t threads : selection.threads) {
      for (const Problem& p : quick_problems(threads, isa)) problems.push_back(p);
    }
    return problems;
  }
  selection.shapes =
      options.shapes.empty() ? default_shapes() : shapes_from_argument(options.shapes);
  if (!options.ops.empty()) selection.ops = options.ops;
  if (!options.rows.empty()) selection.rows = options.rows;
  return expand(selection);
}

}  // namespace quern::bench
