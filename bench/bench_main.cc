// quern-bench: Google Benchmark with problem strings as names. One iteration of a benchmark is one
// row of the table: it alternates blocks of calls of ours with blocks of the peer's and reports the
// median (see README.md).

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/peer_child.h"
#include "bench/session.h"
#include "bench/static_report.h"
#include "bench/usage_error.h"

namespace quern::bench {
namespace {

/// Rows of Google Benchmark get the bare problem string as name, without
/// "/iterations:1/manual_time".
std::vector<benchmark::BenchmarkReporter::Run> renamed(
    std::vector<benchmark::BenchmarkReporter::Run> runs) {
  for (auto& run : runs) {
    run.run_name.iterations.clear();
    run.run_name.time_type.clear();
  }
  return runs;
}

class JsonReporter final : public benchmark::JSONReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    JSONReporter::ReportRuns(renamed(runs));
  }
};

/// Our own table is printed at the end, when both measurements of the roofs are known.
class SilentReporter final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

void run_row(benchmark::State& state, Session* session, const Problem& problem) {
  const Row& row = session->measure(problem);
  if (!row.error.empty()) {
    state.SkipWithError(row.error.c_str());
    return;
  }
  for (auto _ : state) state.SetIterationTime(row.us.median * 1e-6);
  const Floor floor = floor_of(row.work, session->roofs_before(problem));
  state.counters["GOP/s"] = row.gops();
  state.counters["GB/s"] = row.gbps();
  state.counters["mad_us"] = row.us.mad;
  state.counters["calls"] = static_cast<double>(row.us.count);
  state.counters["pct_roof"] = percent_of(floor, row.us.median);
  state.counters["foreign_cpus"] = row.foreign;
  if (row.peer.us.count > 0) {
    state.counters["peer_us"] = row.peer.us.median;
    state.counters["peer_ratio"] = row.peer.ratio;
  }
  state.SetLabel(row.kernel);
}

bool has_flag(const Options& options, const std::string& prefix) {
  for (const std::string& flag : options.benchmark_flags) {
    if (flag.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

/// Hands Google Benchmark its switches. Throws UsageError for one it does not know. `words` must
/// live as long as benchmarks run: the name of the program is kept by pointer.
void initialize_benchmark(const Options& options, std::vector<std::string>* words) {
  *words = {"quern-bench"};
  words->insert(words->end(), options.benchmark_flags.begin(), options.benchmark_flags.end());
  std::vector<char*> argv;
  for (std::string& word : *words) argv.push_back(word.data());
  int argc = static_cast<int>(argv.size());
  benchmark::Initialize(&argc, argv.data());
  if (argc > 1) throw UsageError(std::string("unknown switch ") + argv[1]);
}

/// Throws UsageError where nothing is left to run.
void run_benchmarks(const Options& options) {
  SilentReporter silent;
  JsonReporter json;
  const bool as_json = has_flag(options, "--benchmark_format=json");
  benchmark::BenchmarkReporter* display = nullptr;  // Google Benchmark's own
  if (as_json) display = &json;
  if (!options.other_output) display = &silent;
  JsonReporter file;
  const bool to_file = has_flag(options, "--benchmark_out=");
  const bool file_is_json = to_file && (!has_flag(options, "--benchmark_out_format") ||
                                        has_flag(options, "--benchmark_out_format=json"));
  // Google Benchmark has said on standard error whether the expression or the match is missing.
  if (benchmark::RunSpecifiedBenchmarks(display, file_is_json ? &file : nullptr) == 0) {
    throw UsageError(
        "--benchmark_filter is no regular expression, or none of the problems matches");
  }
}

void write_json(const std::string& path, const std::string& json) {
  std::ofstream file(path);
  file << json;
  file.close();
  if (!file) throw UsageError("--json " + path + ": cannot be written");
}

int run(const Options& options) {
  Session session(options);
  std::vector<Problem> problems = problems_of(options, session.contexts().cpu_count());
  resolve_levels(session.contexts().plain(), &problems);
  if (options.list) {
    for (const Problem& p : problems) fmt::print("{}\n", to_string(p));
    return 0;
  }
  if (!options.json_path.empty())
    write_json(options.json_path, to_json(session.report()));  // fail early
  std::vector<std::string> words;
  initialize_benchmark(options, &words);
  for (const Problem& p : problems) {
    benchmark::RegisterBenchmark(to_string(p).c_str(), run_row, &session, p)
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
  session.announce(problems);
  run_benchmarks(options);
  session.finish();
  if (!options.json_path.empty()) write_json(options.json_path, to_json(session.report()));
  if (!options.other_output)
    fmt::print("{}", to_text(session.report(), TextTable::Style::kMarkdown));
  return session.passed() ? 0 : 1;
}

int run_static(const Options& options) {
  const std::vector<StaticRow> rows = static_rows(options.problems);
  if (!options.json_path.empty()) write_json(options.json_path, static_json(rows));
  fmt::print("{}", static_text(rows));
  return 0;
}

int main_of(const std::vector<std::string>& arguments) {
  if (arguments.size() == 2 && arguments[0] == "--peer-child") return run_onednn_child();
  const Options options = parse_options(arguments);
  if (options.help) {
    fmt::print("{}\n", *options.help);
    return 0;
  }
  return options.static_model ? run_static(options) : run(options);
}

}  // namespace
}  // namespace quern::bench

int main(int argc, char** argv) {
  try {
    const int code = quern::bench::main_of(std::vector<std::string>(argv + 1, argv + argc));
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    fmt::print(stderr, "quern-bench: standard output could not be written\n");
    return 2;
  } catch (const quern::bench::UsageError& e) {
    fmt::print(stderr, "quern-bench: {}\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "quern-bench: {}\n", e.what());
    return 1;
  }
}
