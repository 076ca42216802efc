#include "bench/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

namespace quern::bench {
namespace {

// Three MADs are two standard deviations of a normal distribution.
constexpr double kMads = 3;
// The spread of five blocks can be 0 by luck; nothing repeats better than this on a shared machine.
constexpr double kLeastNoise = 0.01;

/// A problem and which one of those of that name it is.
using Key = std::pair<std::string, int>;

std::vector<std::pair<Key, const Row*>> keyed(const Report& report) {
  std::map<std::string, int> seen;
  std::vector<std::pair<Key, const Row*>> out;
  for (const Row& row : report.rows) {
    const std::string name = to_string(row.problem);
    out.push_back({{name, seen[name]++}, &row});
  }
  return out;
}

double relative_spread(const Row& row) {
  return row.us.median > 0 ? row.block_mad / row.us.median : 0;
}

/// Of the memory rate beside the row, where that is what its percentage holds against.
double rate_spread(const Row& row, const RoofSet& roofs) {
  const bool binds = std::string_view(floor_of(row, roofs).bound) == "DRAM";
  return binds && row.work.memory_rate > 0 ? row.work.memory_mad / row.work.memory_rate : 0;
}

/// Half of what the roof that binds moved during the run: the mean may be off by that much. A row
/// with a memory rate of its own is not held to that mean.
double roof_drift(const Row& row, const RoofSet& roofs) {
  const auto found = roofs.of_threads.find(roofs.key(row.problem.threads));
  if (found == roofs.of_threads.end()) return 0;
  const double before = floor_of(row.work, found->second.before).us;
  const double after = floor_of(row.work, found->second.after).us;
  if (before <= 0 || after <= 0) return 0;
  return std::abs(before - after) / (before + after);
}

std::string remark_of(const Row& a, const Row& b) {
  std::vector<std::string> parts;
  if (!a.error.empty()) parts.push_back("ERROR in A: " + a.error);
  if (!b.error.empty()) parts.push_back("ERROR in B: " + b.error);
  if (a.disturbed()) parts.push_back("A disturbed");
  if (b.disturbed()) parts.push_back("B disturbed");
  if (a.kernel != b.kernel && a.error.empty() && b.error.empty()) {
    parts.push_back(fmt::format("kernel {} became {}", a.kernel, b.kernel));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

ComparedRow compare_rows(const Row& a, const RoofSet& roofs_a, const Row& b,
                         const RoofSet& roofs_b) {
  ComparedRow out;
  out.problem = to_string(a.problem);
  out.remark = remark_of(a, b);
  out.disturbed = a.disturbed() || b.disturbed();
  if (a.has_numbers()) out.us_a = a.us.median;
  if (b.has_numbers()) out.us_b = b.us.median;
  out.percent_a = percent_of(floor_of(a, roofs_a), out.us_a);
  out.percent_b = percent_of(floor_of(b, roofs_b), out.us_b);
  if (out.us_a <= 0 || out.us_b <= 0) return out;
  out.noise = kMads * std::hypot(relative_spread(a), relative_spread(b));
  if (out.percent_a > 0 && out.percent_b > 0) {
    out.ratio = out.percent_b / out.percent_a;
    const double rates = std::hypot(rate_spread(a, roofs_a), rate_spread(b, roofs_b));
    out.noise = std::hypot(out.noise, kMads * rates);
    out.noise += roof_drift(a, roofs_a) + roof_drift(b, roofs_b);
  } else {
    out.ratio = out.us_a / out.us_b;
  }
  out.noise = std::max(out.noise, kLeastNoise);
  return out;
}

void differ(const char* what, const std::string& a, const std::string& b,
            std::vector<std::string>* out) {
  if (a != b) out->push_back(fmt::format("{}: A has '{}', B has '{}'", what, a, b));
}

std::string context_of(const Report& report, const char* key) {
  for (const auto& [name, value] : report.context) {
    if (name == key) return value;
  }
  return "";
}

std::vector<std::string> differences(const Report& a, const Report& b) {
  std::vector<std::string> out;
  differ("cpu", a.cpu, b.cpu, &out);
  differ("usable CPUs", std::to_string(a.roofs.cpus), std::to_string(b.roofs.cpus), &out);
  differ("level", a.level, b.level, &out);
  if (!out.empty()) {
    out.push_back("DIFFERENT MACHINES: times do not compare; percentages of roof do, with care");
  }
  for (const char* key : {"kernel", "huge pages", "quern"}) {
    differ(key, context_of(a, key), context_of(b, key), &out);
  }
  differ("peer", a.peer_name, b.peer_name, &out);
  differ("peer isa", a.peer_isa, b.peer_isa, &out);
  differ("cold bytes", std::to_string(a.memory.cold_bytes), std::to_string(b.memory.cold_bytes),
         &out);
  return out;
}

std::string verdict(const ComparedRow& row) {
  if (!row.ratio) return "no ratio";
  if (row.disturbed) return "disturbed";
  if (!row.beyond_noise()) return "same";
  return *row.ratio > 1 ? "B BETTER" : "B WORSE";
}

std::string percent_cell(double percent) {
  return percent > 0 ? fmt::format("{:.1f} %", percent) : "-";
}

std::string time_cell(double us) {
  return us > 0 ? format_number(us) : "-";
}

}  // namespace

bool ComparedRow::beyond_noise() const {
  return ratio && std::abs(*ratio - 1) > noise;
}

std::vector<const ComparedRow*> Comparison::below(double least) const {
  std::vector<const ComparedRow*> out;
  for (const ComparedRow& row : rows) {
    const bool lost = row.us_a > 0 && row.us_b <= 0;
    if (lost || (row.ratio && *row.ratio < least)) out.push_back(&row);
  }
  return out;
}

Comparison compare(const Report& a, const Report& b) {
  Comparison out;
  out.differences = differences(a, b);
  std::map<Key, const Row*> rest;
  const auto rows_b = keyed(b);
  for (const auto& [key, row] : rows_b) rest[key] = row;
  for (const auto& [key, row] : keyed(a)) {
    const auto found = rest.find(key);
    if (found == rest.end()) {
      out.only_a.push_back(key.first);
      continue;
    }
    out.rows.push_back(compare_rows(*row, a.roofs, *found->second, b.roofs));
    rest.erase(found);
  }
  for (const auto& [key, row] : rows_b) {
    if (rest.count(key) != 0) out.only_b.push_back(key.first);
  }
  return out;
}

std::string to_text(const Comparison& comparison, TextTable::Style style) {
  using Align = TextTable::Align;
  std::string out;
  for (const std::string& sentence : comparison.differences) out += "- " + sentence + "\n";
  if (!out.empty()) out += "\n";
  TextTable table({{"problem"},
                   {"A us", Align::kRight},
                   {"B us", Align::kRight},
                   {"time A/B", Align::kRight},
                   {"A of roof", Align::kRight},
                   {"B of roof", Align::kRight},
                   {"ratio", Align::kRight},
                   {"noise", Align::kRight},
                   {"verdict"},
                   {"remarks"}});
  for (const ComparedRow& row : comparison.rows) {
    const bool both = row.us_a > 0 && row.us_b > 0;
    table.add({row.problem, time_cell(row.us_a), time_cell(row.us_b),
               both ? fmt::format("{:.3f}", row.us_a / row.us_b) : "-", percent_cell(row.percent_a),
               percent_cell(row.percent_b), row.ratio ? fmt::format("{:.3f}", *row.ratio) : "-",
               row.ratio ? fmt::format("{:.1f} %", 100 * row.noise) : "-", verdict(row),
               row.remark});
  }
  out += table.str(style);
  out +=
      "\nratio: percent of roof of B over that of A (of the times, A over B, where no roof holds "
      "a row); > 1: B is better.\nnoise: three MADs of the block medians of both runs and of "
      "the memory rates beside rows that wait for memory, and half of what the other roofs "
      "moved, at least 1 %; within it the verdict is 'same'.\n";
  for (const std::string& problem : comparison.only_a) out += "only in A: " + problem + "\n";
  for (const std::string& problem : comparison.only_b) out += "only in B: " + problem + "\n";
  return out;
}

}  // namespace quern::bench
