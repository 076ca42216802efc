#include "bench/limits.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "bench/numbers.h"
#include "bench/usage_error.h"

namespace quern::bench {
namespace {

constexpr double kTolerance = 0.05;
constexpr double kToleranceAboveLoads = 0.10;

struct Kind {
  Roof roof;
  bool with_loads;
};

std::optional<Kind> kind_of(std::string_view test, std::string_view variant) {
  struct Known {
    std::string_view name;
    Roof roof;
  };
  constexpr Known kInstructions[] = {
      {"vpdpbusd", Roof::kVnni}, {"vdpbf16ps", Roof::kBf16Dot}, {"vfmadd231ps", Roof::kF32Fma}};
  if (test == "dram-read") return Kind{Roof::kDram, false};
  for (const Known& known : kInstructions) {
    if (test == known.name && variant == "reg") return Kind{known.roof, false};
    if (test == "ukernel6x4" && variant == std::string(known.name) + "-L1") {
      return Kind{known.roof, true};
    }
  }
  return std::nullopt;
}

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> fields;
  while (true) {
    const size_t comma = line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

void keep_best(const Limit& limit, std::vector<Limit>* limits) {
  for (Limit& known : *limits) {
    if (known.roof != limit.roof || known.threads != limit.threads) continue;
    const bool better =
        known.with_loads == limit.with_loads ? limit.best > known.best : known.with_loads;
    if (better) known = limit;
    return;
  }
  limits->push_back(limit);
}

}  // namespace

std::vector<Limit> parse_limits(std::string_view text, const std::string& source) {
  std::vector<Limit> limits;
  for (int line_number = 1; !text.empty(); ++line_number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    const std::vector<std::string_view> fields = split(line);
    if (fields.size() < 7 || fields[0] != "limit") continue;
    const std::optional<Kind> kind = kind_of(fields[1], fields[2]);
    if (!kind) continue;
    const std::string where = fmt::format("--limits {}:{}:", source, line_number);
    Limit limit;
    limit.roof = kind->roof;
    limit.with_loads = kind->with_loads;
    limit.threads = static_cast<int>(parse_whole(where + " threads", fields[3], 1, 1 << 20));
    limit.best = parse_real(where + " best", fields[4], 0, 1e9);
    limit.median = parse_real(where + " median", fields[5], 0, 1e9);
    keep_best(limit, &limits);
  }
  if (limits.empty()) {
    throw UsageError(
        fmt::format("--limits {}: holds no line 'limit,<test>,<variant>,<threads>,"
                    "<best>,<median>,<unit>' of dram-read, vpdpbusd, vdpbf16ps, "
                    "vfmadd231ps or ukernel6x4",
                    source));
  }
  return limits;
}

double LimitCheck::distance() const {
  const double low = std::min(limit.median, limit.best), high = std::max(limit.median, limit.best);
  if (ours < low) return low > 0 ? ours / low - 1 : 0;
  return ours > high && high > 0 ? ours / high - 1 : 0;
}

bool LimitCheck::agrees() const {
  const double d = distance();
  return d >= -kTolerance && d <= (limit.with_loads ? kToleranceAboveLoads : kTolerance);
}

std::vector<LimitCheck> compare_limits(const std::vector<Limit>& limits, const RoofSet& roofs,
                                       bool after) {
  std::vector<LimitCheck> checks;
  for (const Limit& limit : limits) {
    const auto found = roofs.of_threads.find(limit.threads);
    if (found == roofs.of_threads.end()) continue;
    const double ours = (after ? found->second.after : found->second.before)[limit.roof];
    if (ours > 0) checks.push_back({after ? "after" : "before", limit, ours});
  }
  return checks;
}

LimitsSource::LimitsSource(std::string argument) : argument_(std::move(argument)) {
  std::error_code error;
  is_file_ =
      std::filesystem::is_regular_file(argument_, error) && access(argument_.c_str(), X_OK) != 0;
}

std::vector<Limit> LimitsSource::read() const {
  std::string text;
  if (is_file_) {
    std::ifstream file(argument_);
    std::stringstream content;
    content << file.rdbuf();
    text = content.str();
  } else {
    FILE* pipe = popen(argument_.c_str(), "re");
    if (pipe == nullptr) throw UsageError("--limits " + argument_ + ": cannot be started");
    char chunk[4096];
    for (size_t got; (got = fread(chunk, 1, sizeof chunk, pipe)) > 0;) text.append(chunk, got);
    if (const int status = pclose(pipe); status != 0) {
      throw UsageError(
          fmt::format("--limits {}: neither a file nor a command that succeeds "
                      "(wait status {})",
                      argument_, status));
    }
  }
  return parse_limits(text, argument_);
}

std::string limits_table(const std::vector<LimitCheck>& checks, TextTable::Style style) {
  using Align = TextTable::Align;
  TextTable table({{"limit"},
                   {"threads", Align::kRight},
                   {"when"},
                   {"its median", Align::kRight},
                   {"its best", Align::kRight},
                   {"roof", Align::kRight},
                   {"distance", Align::kRight}});
  bool agree = true;
  for (const LimitCheck& check : checks) {
    const RoofName& name = kRoofNames[static_cast<size_t>(check.limit.roof)];
    table.add({std::string(name.label) + (check.limit.with_loads ? ", loads beside" : ""),
               std::to_string(check.limit.threads), check.when,
               fmt::format("{:.1f}", check.limit.median), fmt::format("{:.1f}", check.limit.best),
               fmt::format("{:.1f}", check.ours),
               fmt::format("{:+.1f} %{}", 100 * check.distance(), check.agrees() ? "" : " VOID")});
    agree = agree && check.agrees();
  }
  return table.str(style) +
         (agree ? "\nRoofs and limits agree: within 5 % of [median, best], 10 % above where loads "
                  "ran beside.\n"
                : "\nVOID: a roof and a limit differ by more than 5 %; do not quote this run.\n");
}

}  // namespace quern::bench
