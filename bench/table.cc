#include "bench/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace quern::bench {
namespace {

using Align = TextTable::Align;

std::string rate_of(const Row& row, const Floor& floor) {
  // The unit of the roof that binds; operations where there is none and there are any.
  const bool bytes = std::string(floor.bound) == "DRAM" || row.work.ops == 0;
  return bytes ? format_number(row.gbps()) + " GB/s" : format_number(row.gops()) + " GOP/s";
}

std::string percent_cell(const Row& row, const Floor& floor) {
  if (floor.us <= 0) return "-";
  return fmt::format("{:.0f} % {}", percent_of(floor, row.us.median), floor.bound);
}

std::string remarks(const Row& row) {
  std::vector<std::string> out;
  if (row.disturbed()) out.push_back(fmt::format("DISTURBED ({:.2f} CPUs taken)", row.foreign));
  if (row.us.median > 0 && row.us.mad > 0.1 * row.us.median) {
    out.push_back(fmt::format("MAD {:.0f} %", 100 * row.us.mad / row.us.median));
  }
  if (!row.peer.note.empty()) out.push_back("peer: " + row.peer.note);
  return fmt::format("{}", fmt::join(out, "; "));
}

}  // namespace

int RoofSet::key(int threads) const {
  return std::clamp(threads, 1, std::max(1, cpus));
}

Roofs RoofSet::of(int threads) const {
  const auto found = of_threads.find(key(threads));
  return found == of_threads.end() ? Roofs{} : mean(found->second.before, found->second.after);
}

Floor floor_of(const Row& row, const RoofSet& roofs) {
  return floor_of(row.work, roofs.of(row.problem.threads));
}

std::string format_number(double value) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0";
  const int exponent = static_cast<int>(std::floor(std::log10(std::abs(value))));
  return fmt::format("{:.{}f}", value, std::clamp(3 - exponent, 0, 6));
}

std::string rows_table(const std::vector<Row>& rows, const RoofSet& roofs,
                       const std::string& peer_name, TextTable::Style style) {
  const std::string peer = peer_name.empty() ? "peer" : peer_name;
  TextTable table({{"problem"},
                   {"kernel"},
                   {"us", Align::kRight},
                   {"rate", Align::kRight},
                   {"of roof", Align::kRight},
                   {peer + " us", Align::kRight},
                   {"ratio", Align::kRight},
                   {"verified"},
                   {"remarks"}});
  for (const Row& row : rows) {
    const std::string name = to_string(row.problem);
    if (!row.error.empty()) {
      table.add({name, row.kernel, "-", "-", "-", "-", "-", to_string(row.verified),
                 "ERROR: " + row.error});
      continue;
    }
    const Floor floor = floor_of(row, roofs);
    const bool peer_ran = row.peer.us.count > 0;
    table.add({name, row.kernel, format_number(row.us.median), rate_of(row, floor),
               percent_cell(row, floor), peer_ran ? format_number(row.peer.us.median) : "-",
               peer_ran ? fmt::format("{:.2f}", row.peer.ratio) : "-", to_string(row.verified),
               remarks(row)});
  }
  return table.str(style);
}

std::string roofs_table(const RoofSet& roofs, TextTable::Style style) {
  TextTable table(
      {{"roof"}, {"threads", Align::kRight}, {"before", Align::kRight}, {"after", Align::kRight}});
  std::string sentences;
  for (const auto& [threads, pair] : roofs.of_threads) {
    for (const RoofName& name : kRoofNames) {
      const double before = pair.before[name.roof], after = pair.after[name.roof];
      const auto cell = [&](double rate) {
        return rate > 0 ? fmt::format("{:.1f} {}", rate, name.unit) : "not measured";
      };
      // What this CPU does not have has no line.
      if (before <= 0 && after <= 0 && name.roof != Roof::kDram) continue;
      table.add({name.label, std::to_string(threads), cell(before), cell(after)});
    }
    for (const std::string& sentence : moved(pair.before, pair.after)) {
      sentences += fmt::format(
          "ROOFS MOVED, {} thread{}: {}; percentages hold against the mean, those of rows from "
          "memory "
          "against the rate beside them.\n",
          threads, threads == 1 ? "" : "s", sentence);
    }
  }
  return table.str(style) + (sentences.empty() ? "" : "\n" + sentences);
}

std::string footnotes(const std::vector<Row>& rows, const std::string& peer_name) {
  std::string out =
      "us: median of the block medians. of roof: the floor max(bytes / DRAM bandwidth, operations "
      "/ "
      "peak) over us,\nand which of the two binds; bytes are the packed weights (quantize_rows: "
      "input and output); a hot row whose\nbytes fit the last-level cache is held to the "
      "arithmetic peak alone. bf16 peak: the faster of vdpbf16ps and vfmadd231ps. DRAM bandwidth "
      "of a "
      "row: the median of\nwhat was read between its blocks.\n";
  if (!peer_name.empty()) {
    out += fmt::format(
        "ratio: {0} time over ours, median of the alternations; > 1: quern is faster. int8 on {0} "
        "is u8 x s8 with one\nscale per column and its activations quantized beforehand: "
        "quantization is in our time and not in its time.\n",
        peer_name);
  }
  const auto disturbed =
      std::count_if(rows.begin(), rows.end(), [](const Row& r) { return r.disturbed(); });
  if (disturbed > 0) {
    out += fmt::format(
        "DISTURBED: other processes took more than {} of a CPU; {} of {} rows, do not "
        "quote them.\n",
        kForeignLimit, disturbed, rows.size());
  }
  return out;
}

}  // namespace quern::bench
