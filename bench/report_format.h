#pragma once

#include <optional>
#include <string_view>

#include "bench/roofline.h"

namespace quern::bench {

/// What the JSON form of a report begins with. The version rises when a reader of the one before
/// would misread a file.
constexpr const char* kReportFormat = "quern-bench";
constexpr int kReportVersion = 2;

struct PeakName {
  Peak peak;
  const char* name;
};
constexpr PeakName kPeakNames[] = {
    {Peak::kNone, "none"}, {Peak::kInt8, "int8"}, {Peak::kBf16, "bf16"}};

inline const char* name_of(Peak peak) {
  for (const PeakName& entry : kPeakNames) {
    if (entry.peak == peak) return entry.name;
  }
  return "?";
}

inline std::optional<Peak> peak_from(std::string_view name) {
  for (const PeakName& entry : kPeakNames) {
    if (name == entry.name) return entry.peak;
  }
  return std::nullopt;
}

}  // namespace quern::bench
