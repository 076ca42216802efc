#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quern::smoke {

/// What a plan says of itself (explain(), ops/README.md), taken apart.
struct PlanText {
  struct Candidate {
    std::string family;
    std::string refused;  ///< the reason; empty: chosen
  };
  struct Rows {  ///< how calls with M in [from, to] are cut, and the kernel that they run
    int64_t from = 0, to = 0;
    std::string blocking, kernel;
  };
  std::vector<Candidate> candidates;
  std::vector<std::string> kernels;  ///< all of them
  std::vector<std::string> common;   ///< of these, the ones that every call runs (quantization)
  std::vector<Rows> rows;

  /// "avx512", or "amx+avx512" where the rows of a call decide; empty when none was chosen.
  std::string family() const;
  /// The kernels that a call with M rows runs, joined by " + ".
  std::string kernels_for(int64_t m) const;
};

PlanText parse_plan_text(const std::string& explain);

/// The families that a model's plans run, each once: "avx512", "amx+avx512"; "none" where no plan
/// has one.
std::string families_of(const std::vector<PlanText>& plans);

}  // namespace quern::smoke
