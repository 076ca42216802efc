#include "bench/text_table.h"

#include <algorithm>

namespace quern::bench {
namespace {

using Align = TextTable::Align;
using Style = TextTable::Style;

/// Characters, not bytes: cells may hold UTF-8.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string padded(const std::string& text, size_t width, Align align) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return align == Align::kLeft ? text + space : space + text;
}

std::string styled(std::string cell, Style style) {
  if (style == Style::kPlain) return cell;
  for (size_t at = 0; (at = cell.find('|', at)) != std::string::npos; at += 2) {
    cell.replace(at, 1, "\\|");
  }
  return cell;
}

std::string joined(const std::vector<std::string>& cells, Style style) {
  std::string line = style == Style::kMarkdown ? "|" : "";
  for (size_t i = 0; i < cells.size(); ++i) {
    if (style == Style::kMarkdown) {
      line += " " + cells[i] + " |";
    } else {
      line += (i == 0 ? "" : "  ") + cells[i];
    }
  }
  return line.erase(line.find_last_not_of(' ') + 1) + "\n";
}

std::string rule(size_t width, Align align, Style style) {
  std::string dashes(width, '-');
  if (style == Style::kMarkdown && align == Align::kRight) dashes.back() = ':';
  return dashes;
}

}  // namespace

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

void TextTable::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) {
    std::replace_if(
        cell.begin(), cell.end(),
        [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  }
  rows_.push_back(std::move(cells));
}

std::string TextTable::str(Style style) const {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : columns_) lines[0].push_back(styled(column.title, style));
  for (const auto& row : rows_) {
    lines.emplace_back();
    for (const std::string& cell : row) lines.back().push_back(styled(cell, style));
  }
  std::vector<std::string> rules;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = 3;
    for (const auto& line : lines) width = std::max(width, width_of(line[i]));
    for (auto& line : lines) line[i] = padded(line[i], width, columns_[i].align);
    rules.push_back(rule(width, columns_[i].align, style));
  }
  lines.insert(lines.begin() + 1, std::move(rules));
  std::string out;
  for (const auto& line : lines) out += joined(line, style);
  return out;
}

}  // namespace quern::bench
