#include "bench/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace quern::bench {
namespace {

using Align = MarkdownTable::Align;

/// Characters, not bytes: cells may hold UTF-8.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string padded(const std::string& text, size_t width, Align align) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return align == Align::kLeft ? text + space : space + text;
}

/// The roofs a row is held to; zeros where none were measured for its threads.
Roofs roofs_for(const Row& row, const std::map<int, RoofPair>& roofs) {
  const auto found = roofs.find(std::max(1, static_cast<int>(row.problem.threads)));
  return found == roofs.end() ? Roofs{} : mean(found->second.before, found->second.after);
}

std::string rate_of(const Row& row, const Floor& floor) {
  // The unit of the roof that binds; operations where there is none and there are any.
  const bool bytes = std::string(floor.bound) == "DRAM" || row.work.ops == 0;
  return bytes ? format_number(row.gbps()) + " GB/s" : format_number(row.gops()) + " GOP/s";
}

std::string percent_cell(const Row& row, const Floor& floor) {
  if (floor.us <= 0) return "-";
  return fmt::format("{:.0f} % {}", percent_of(floor, row.us.median), floor.bound);
}

std::string verified_cell(Verified verified) {
  switch (verified) {
    case Verified::kEqual:
      return "equal";
    case Verified::kWithinBound:
      return "within bound";
    case Verified::kFailed:
      return "FAILED";
    case Verified::kNotAsked:
      break;
  }
  return "no";
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

MarkdownTable::MarkdownTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

void MarkdownTable::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) {
    for (size_t at = 0; (at = cell.find('|', at)) != std::string::npos; at += 2) {
      cell.replace(at, 1, "\\|");
    }
    std::replace(cell.begin(), cell.end(), '\n', ' ');
  }
  rows_.push_back(std::move(cells));
}

std::string MarkdownTable::str() const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = std::max<size_t>(3, width_of(columns_[i].title));
    for (const auto& row : rows_) width = std::max(width, width_of(row[i]));
    widths.push_back(width);
  }
  std::string head = "|", rule = "|", body;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const Align align = columns_[i].align;
    head += " " + padded(columns_[i].title, widths[i], align) + " |";
    const std::string dashes(widths[i] - 1, '-');
    rule += align == Align::kLeft ? " " + dashes + "- |" : " " + dashes + ": |";
  }
  for (const auto& row : rows_) {
    body += "|";
    for (size_t i = 0; i < columns_.size(); ++i) {
      body += " " + padded(row[i], widths[i], columns_[i].align) + " |";
    }
    body += "\n";
  }
  return head + "\n" + rule + "\n" + body;
}

std::string format_number(double value) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0";
  const int exponent = static_cast<int>(std::floor(std::log10(std::abs(value))));
  return fmt::format("{:.{}f}", value, std::clamp(3 - exponent, 0, 6));
}

std::string rows_table(const std::vector<Row>& rows, const std::map<int, RoofPair>& roofs,
                       const std::string& peer_name) {
  const std::string peer = peer_name.empty() ? "peer" : peer_name;
  MarkdownTable table({{"problem"},
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
      table.add({name, row.kernel, "-", "-", "-", "-", "-", verified_cell(row.verified),
                 "ERROR: " + row.error});
      continue;
    }
    const Floor floor = floor_of(row.work, roofs_for(row, roofs));
    const bool peer_ran = row.peer.us.count > 0;
    table.add({name, row.kernel, format_number(row.us.median), rate_of(row, floor),
               percent_cell(row, floor), peer_ran ? format_number(row.peer.us.median) : "-",
               peer_ran ? fmt::format("{:.2f}", row.peer.ratio) : "-", verified_cell(row.verified),
               remarks(row)});
  }
  return table.str();
}

std::string roofs_table(const std::map<int, RoofPair>& roofs) {
  MarkdownTable table(
      {{"roof"}, {"threads", Align::kRight}, {"before", Align::kRight}, {"after", Align::kRight}});
  std::string sentences;
  for (const auto& [threads, pair] : roofs) {
    const auto add = [&, count = std::to_string(threads)](const char* what, double before,
                                                          double after, const char* unit) {
      if (before <= 0) return table.add({what, count, "not measured", "not measured"});
      table.add({what, count, fmt::format("{:.1f} {}", before, unit),
                 fmt::format("{:.1f} {}", after, unit)});
    };
    add("DRAM read", pair.before.dram_gbps, pair.after.dram_gbps, "GB/s");
    add("int8 (vpdpbusd)", pair.before.int8_gops, pair.after.int8_gops, "GOP/s");
    add("bf16 (vdpbf16ps)", pair.before.bf16_gops, pair.after.bf16_gops, "GOP/s");
    for (const std::string& sentence : moved(pair.before, pair.after)) {
      sentences += fmt::format("ROOFS MOVED, {} thread{}: {}; percentages hold against the mean.\n",
                               threads, threads == 1 ? "" : "s", sentence);
    }
  }
  return table.str() + (sentences.empty() ? "" : "\n" + sentences);
}

std::string footnotes(const std::vector<Row>& rows, const std::string& peer_name) {
  std::string out =
      "us: median of the block medians. of roof: the floor max(bytes / DRAM bandwidth, operations "
      "/ "
      "peak) over us,\nand which of the two binds; bytes are the packed weights (quantize_rows: "
      "input "
      "and output); a hot row whose\nbytes fit a last-level cache is held to the arithmetic peak "
      "alone. cold:1 rotates among copies of more than 320 MB.\n";
  if (!peer_name.empty()) {
    out += fmt::format(
        "ratio: {0} time over ours, median of the alternations; > 1: quern is faster. int8 on {0} "
        "is "
        "u8 x s8 with one\nscale per column and its activations quantized beforehand: quantization "
        "is in our time and not in its time.\n",
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
