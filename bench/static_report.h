#pragma once

#include <string>
#include <vector>

#include "bench/static_kernels.h"

namespace quern::bench {

/// A kernel's call in the static model.
struct StaticRow {
  std::string kernel;
  StaticCall call;
  CallModel model;
  double alone = 0;  ///< occupancy where the call stands alone, in [0, 1]
};

/// The depth that the bars of the design hold for.
constexpr int64_t kStaticDepth = 4096;

/// One row for each name, or for default_static_kernels() where there are none: a whole block of
/// C, kStaticDepth deep. Throws UsageError where a name is none, or code cannot be read.
std::vector<StaticRow> static_rows(const std::vector<std::string>& names);

/// What the model is and is not, and a markdown table.
std::string static_text(const std::vector<StaticRow>& rows);
/// The same, with what each phase asks of each port.
std::string static_json(const std::vector<StaticRow>& rows);

}  // namespace quern::bench
