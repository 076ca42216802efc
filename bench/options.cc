#include "bench/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "bench/numbers.h"
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

constexpr int64_t kMostRows = int64_t{1} << 28;

/// The numbers of a comma-separated list.
template <typename T>
std::vector<T> parse_list(const std::string& what, const std::string& text, int64_t least,
                          int64_t most) {
  std::vector<T> out;
  size_t begin = 0;
  while (true) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    out.push_back(static_cast<T>(
        parse_whole(what, std::string_view(text).substr(begin, comma - begin), least, most)));
    if (comma == text.size()) return out;
    begin = comma + 1;
  }
}

void check_static(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument.rfind('-', 0) != 0 || argument == "--static") continue;
    if (argument == "--json" || argument.rfind("--json=", 0) == 0) continue;
    throw UsageError("--static measures nothing and takes names of kernels and --json only, not " +
                     argument);
  }
}

void check_exclusions(const Options& options) {
  const bool selects = !options.ops.empty() || !options.shapes.empty() || !options.rows.empty() ||
                       !options.batches.empty() || options.group || options.activations;
  if (!options.problems.empty() && (selects || options.quick || options.isa != IsaLevel::kNone)) {
    throw UsageError(
        "problem strings and a selection (--ops, --shapes, --m, --batch, --group, --act, --isa, "
        "--quick) exclude each other");
  }
  if (options.quick && selects) {
    throw UsageError(
        "--quick has its own problems; leave out --ops, --shapes, --m, --batch, --group "
        "and --act");
  }
  const bool batched =
      std::find(options.ops.begin(), options.ops.end(), "bmm") != options.ops.end();
  if (!options.batches.empty() && !batched) throw UsageError("--batch is for --ops bmm");
  const bool int4 =
      std::find(options.ops.begin(), options.ops.end(), "int4_gemm") != options.ops.end();
  if (options.group && !int4) throw UsageError("--group is for --ops int4_gemm");
}

/// Google Benchmark takes nan, and ends in a std::length_error for fewer than no repetitions.
void check_benchmark_flags(const std::vector<std::string>& flags) {
  for (const std::string& flag : flags) {
    const size_t equals = std::min(flag.find('='), flag.size());
    const std::string name = flag.substr(0, equals);
    std::string value = flag.substr(std::min(equals + 1, flag.size()));
    if (name == "--benchmark_repetitions") parse_whole(name, value, 1, 1000);
    if (name == "--benchmark_min_time" || name == "--benchmark_min_warmup_time") {
      if (!value.empty() && value.back() == 's') value.pop_back();  // of newer versions
      parse_real(name, value, 0, 3600);
    }
  }
}

/// Words of the command line whose values are not strings in Options. They are parsed here and not
/// by CLI11, which takes 0x10, 010, nan and the numbers behind the names of an enum.
struct Words {
  std::string m, batch, group, act, threads, cold = "auto", isa = "auto", peer = "onednn",
                                             peer_isa = "row";
  std::string min_time, alternations;
};

void apply(const Words& words, Options* options) {
  if (!words.m.empty()) options->rows = parse_list<int64_t>("--m", words.m, 0, kMostRows);
  if (!words.batch.empty()) {
    options->batches = parse_list<int64_t>("--batch", words.batch, 0, kMostRows);
  }
  if (!words.group.empty()) options->group = parse_whole("--group", words.group, 0, kMostRows);
  if (words.act == "s8dyn") options->activations = Int8Activations::kDynamicS8;
  if (words.act == "bf16") options->activations = Int8Activations::kBF16;
  if (!words.threads.empty()) {
    options->threads = parse_list<int32_t>("--threads", words.threads, 1, 1024);
  }
  if (!words.min_time.empty()) {
    options->measure.budget.seconds = parse_real("--min-time", words.min_time, 0.001, 60);
  }
  if (!words.alternations.empty()) {
    options->measure.alternations =
        static_cast<int>(parse_whole("--alternations", words.alternations, 1, 1000));
  }
  options->cold = words.cold == "0"   ? ColdMode::kHot
                  : words.cold == "1" ? ColdMode::kCold
                                      : ColdMode::kAuto;
  options->isa = words.isa == "amx"      ? IsaLevel::kAmx
                 : words.isa == "avx512" ? IsaLevel::kAvx512
                                         : IsaLevel::kNone;
  options->peer = words.peer == "onednn";
  options->peer_isa = words.peer_isa == "best" ? PeerIsa::kBest : PeerIsa::kRow;
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  Words words;
  options.command = fmt::format("quern-bench {}", fmt::join(arguments, " "));
  const std::vector<std::string> own = split(arguments, &options);

  CLI::App app(
      "Times quern's ops and holds each against the measured limits of this machine and "
      "against oneDNN.",
      "quern-bench");
  app.footer(kFooter);
  app.add_option("problems", options.problems, "Problem strings to run");
  app.add_option("--shapes", options.shapes,
                 "NxK[,NxK...], a file of 'N x K' lines, or qwen3_5, deepseek_v3, edges");
  app.add_option("--ops", options.ops,
                 "int4_gemm, fp4_gemm, fp8_gemm, int8_gemm, bf16_gemm, bmm, quantize_rows")
      ->delimiter(',')
      ->check(CLI::IsMember(
          {"int4_gemm", "fp4_gemm", "fp8_gemm", "int8_gemm", "bf16_gemm", "bmm", "quantize_rows"}));
  app.add_option("--m", words.m, "Row counts")->option_text("LIST");
  app.add_option("--batch", words.batch, "Matrices of bmm; default 128")->option_text("LIST");
  app.add_option("--group", words.group,
                 "Columns of K that share a scale of int4_gemm; default 128")
      ->option_text("G");
  app.add_option("--act", words.act, "What multiplies int4 and int8 weights; default s8dyn")
      ->check(CLI::IsMember({"s8dyn", "bf16"}))
      ->option_text("s8dyn|bf16");
  app.add_option("--threads", words.threads, "Thread counts; default all CPUs")
      ->option_text("LIST");
  app.add_option("--cold", words.cold,
                 "auto (up to 16 rows), 0, 1: rotate among weight copies larger than any cache")
      ->check(CLI::IsMember({"auto", "0", "1"}))
      ->option_text("auto|0|1");
  app.add_option("--isa", words.isa, "Level of the kernels; auto: what the plan chooses")
      ->check(CLI::IsMember({"auto", "avx512", "amx"}))
      ->option_text("auto|avx512|amx");
  app.add_option("--peer", words.peer, "Library to compare with")
      ->check(CLI::IsMember({"onednn", "none"}))
      ->option_text("onednn|none");
  app.add_option("--peer-isa", words.peer_isa,
                 "row: the peer may use no more than the level of the row; best: all it can")
      ->check(CLI::IsMember({"row", "best"}))
      ->option_text("row|best");
  app.add_flag("--verify", options.measure.verify, "Check each result against the reference first");
  app.add_flag("--quick", options.quick, "A representative dozen, verified, within a minute");
  app.add_flag("--list", options.list, "Print the problem strings and stop");
  app.add_flag("--static", options.static_model,
               "Model the ports of kernels given by name (default: the AMX GEMMs) without running "
               "them; not validated on hardware");
  app.add_option("--json", options.json_path, "Also write the report to this file as JSON");
  app.add_option("--limits", options.limits,
                 "Another program's limits to hold the roofs against: a command, run before and "
                 "after, or a file with its output (README)")
      ->option_text("FILE|CMD");
  app.add_option("--min-time", words.min_time, "Seconds of a block of calls, 0.001 to 60")
      ->option_text("S");
  app.add_option("--alternations", words.alternations,
                 "Blocks of ours and of the peer's in turn, 1 to 1000")
      ->option_text("N");
  try {
    app.parse(std::vector<std::string>(own.rbegin(), own.rend()));
  } catch (const CLI::CallForHelp&) {
    options.help = app.help();
    return options;
  } catch (const CLI::ParseError& e) {
    throw UsageError(std::string(e.what()) + "; see quern-bench --help");
  }
  apply(words, &options);
  check_benchmark_flags(options.benchmark_flags);
  if (options.quick) {
    options.measure.verify = true;
    options.measure.tries = 1;
  }
  if (options.static_model) check_static(arguments);
  check_exclusions(options);
  return options;
}

std::vector<Problem> problems_of(const Options& options, int cpu_count) {
  Selection selection;
  selection.isa = options.isa;
  selection.cold = options.cold;
  selection.threads = {cpu_count};
  if (!options.threads.empty()) selection.threads = options.threads;
  if (!options.problems.empty()) {
    return parse_problems(options.problems, selection.threads.front());
  }
  if (options.quick) {
    std::vector<Problem> problems;
    for (int32_t threads : selection.threads) {
      for (const Problem& p : quick_problems(threads, options.isa)) problems.push_back(p);
    }
    return problems;
  }
  selection.shapes =
      options.shapes.empty() ? default_shapes() : shapes_from_argument(options.shapes);
  if (options.shapes.empty()) selection.bmm_shapes = default_bmm_shapes();
  if (!options.batches.empty()) selection.batches = options.batches;
  if (!options.ops.empty()) selection.ops = options.ops;
  if (!options.rows.empty()) selection.rows = options.rows;
  if (options.group) selection.group = *options.group;
  if (options.activations) selection.activations = *options.activations;
  return expand(selection);
}

}  // namespace quern::bench
