#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/table.h"

namespace quern::bench {

/// A limit of the machine as another program measured it.
struct Limit {
  Roof roof = Roof::kDram;
  int threads = 0;
  double median = 0;  ///< in the unit of the roof
  double best = 0;
  /// Measured with loads beside the arithmetic: it may lie below what registers alone reach.
  bool with_loads = false;
};

/// Parses lines `limit,<test>,<variant>,<threads>,<best>,<median>,<unit>`; for each roof and thread
/// count the best line stands, register loops before loops with loads. Other tests and other lines
/// are passed over. Throws UsageError that names `source` and the line where a number is none, and
/// where nothing in it is a limit that quern-bench measures.
std::vector<Limit> parse_limits(std::string_view text, const std::string& source);

/// A limit beside the roof.
struct LimitCheck {
  std::string when;  ///< "before" or "after"
  Limit limit;
  double ours = 0;

  /// Relative distance of ours from [median, best]; 0 inside.
  double distance() const;
  /// Within 5 %; up to 10 % above a limit that was measured with loads.
  bool agrees() const;
};

/// The limits that have a counterpart in `of_threads`; `after`: compare with the second roofs.
std::vector<LimitCheck> compare_limits(const std::vector<Limit>& limits, const RoofSet& roofs,
                                       bool after);

/// What --limits names: the text of a file, or what a command prints. Throws UsageError.
class LimitsSource {
 public:
  explicit LimitsSource(std::string argument);
  std::vector<Limit> read() const;

 private:
  std::string argument_;
  bool is_file_ = false;
};

/// A table, and a sentence that says whether the run is void.
std::string limits_table(const std::vector<LimitCheck>& checks, TextTable::Style style);

}  // namespace quern::bench
