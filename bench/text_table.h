#pragma once

#include <string>
#include <vector>

namespace quern::bench {

/// A table whose columns line up.
class TextTable {
 public:
  enum class Align { kLeft, kRight };
  enum class Style {
    kMarkdown,  ///< a markdown table that also reads as text; '|' in cells is escaped
    kPlain,     ///< columns two spaces apart, under a rule
  };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit TextTable(std::vector<Column> columns);
  /// As many cells as there are columns. Control characters become spaces: what is printed may
  /// come out of a file.
  void add(std::vector<std::string> cells);
  std::string str(Style style) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace quern::bench
