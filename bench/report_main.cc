// quern-report: reads what quern-bench --json wrote. Exit codes: 0; 1 a row fell below
// --fail-below; 2 bad input or usage.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "bench/compare.h"
#include "bench/numbers.h"
#include "bench/report.h"
#include "bench/roofline_svg.h"
#include "bench/usage_error.h"

namespace quern::bench {
namespace {

constexpr uintmax_t kLargestFile = uintmax_t{64} << 20;  // some 50,000 rows

Report read_report(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) throw UsageError(path + ": is no file");
  if (std::filesystem::file_size(path, error) > kLargestFile) {
    throw UsageError(path + ": is larger than 64 MiB, no result of quern-bench is");
  }
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) throw UsageError(path + ": cannot be read");
  return report_from_json(text.str(), path);
}

struct Words {
  std::vector<std::string> files;
  std::string a, b, fail_below, output, file;
  bool markdown = false;

  TextTable::Style style() const {
    return markdown ? TextTable::Style::kMarkdown : TextTable::Style::kPlain;
  }
};

int table(const Words& words) {
  std::vector<Report> reports;  // all are read before anything is printed
  for (const std::string& path : words.files) reports.push_back(read_report(path));
  for (size_t i = 0; i < reports.size(); ++i) {
    if (reports.size() > 1) fmt::print("{}{}:\n\n", i == 0 ? "" : "\n", words.files[i]);
    fmt::print("{}", to_text(reports[i], words.style()));
  }
  return 0;
}

int compare_files(const Words& words) {
  double least = 0;
  if (!words.fail_below.empty()) least = parse_real("--fail-below", words.fail_below, 0, 100);
  const Report a = read_report(words.a), b = read_report(words.b);
  const Comparison comparison = compare(a, b);
  if (comparison.rows.empty()) {
    throw UsageError(fmt::format("{} and {} have no problem in common", words.a, words.b));
  }
  fmt::print("- A: {} (revision {}, {})\n- B: {} (revision {}, {})\n{}", words.a, a.revision,
             a.started, words.b, b.revision, b.started, to_text(comparison, words.style()));
  if (words.fail_below.empty()) return 0;
  const auto below = comparison.below(least);
  for (const ComparedRow* row : below) {
    fmt::print("BELOW {}: {} ({})\n", words.fail_below, row->problem,
               row->ratio ? fmt::format("{:.3f}", *row->ratio) : "no number in B");
  }
  return below.empty() ? 0 : 1;
}

int roofline(const Words& words) {
  std::vector<std::string> left_out;
  const std::string svg = roofline_svg(read_report(words.file), &left_out);
  for (const std::string& row : left_out) {
    fmt::print(stderr, "quern-report: no point for {}\n", row);
  }
  std::ofstream file(words.output, std::ios::binary);
  file << svg;
  file.close();
  if (!file) throw UsageError(words.output + ": cannot be written");
  return 0;
}

int main_of(int argc, char** argv) {
  Words words;
  CLI::App app("Shows and compares results of quern-bench --json.", "quern-report");
  app.footer("Exit code: 0 done, 1 a row fell below --fail-below, 2 bad input or wrong usage.");
  app.require_subcommand(1);
  CLI::App* show = app.add_subcommand("table", "The tables that quern-bench printed");
  show->add_option("files", words.files, "Results")->required();
  show->add_flag("--markdown", words.markdown, "Markdown instead of aligned text");
  CLI::App* two = app.add_subcommand("compare", "Two runs, problem by problem");
  two->add_option("A", words.a, "The run before")->required();
  two->add_option("B", words.b, "The run after")->required();
  two->add_option("--fail-below", words.fail_below,
                  "Exit 1 when the ratio of a row is below R, or B lost its number")
      ->option_text("R");
  two->add_flag("--markdown", words.markdown, "Markdown instead of aligned text");
  CLI::App* chart = app.add_subcommand("roofline", "A roofline chart as SVG");
  chart->add_option("file", words.file, "Result")->required();
  chart->add_option("-o", words.output, "Where to write the chart")
      ->required()
      ->option_text("FILE.svg");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", (*show ? show : *two ? two : *chart ? chart : &app)->help());
    return 0;
  } catch (const CLI::ParseError& e) {
    throw UsageError(std::string(e.what()) + "; see quern-report --help");
  }
  if (*show) return table(words);
  return *two ? compare_files(words) : roofline(words);
}

}  // namespace
}  // namespace quern::bench

int main(int argc, char** argv) {
  try {
    const int code = quern::bench::main_of(argc, argv);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    fmt::print(stderr, "quern-report: standard output could not be written\n");
  } catch (const std::exception& e) {
    fmt::print(stderr, "quern-report: {}\n", e.what());
  }
  return 2;
}
