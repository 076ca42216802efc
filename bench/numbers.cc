#include "bench/numbers.h"

#include <fmt/format.h>

#include <charconv>

#include "bench/usage_error.h"

namespace quern::bench {

int64_t parse_whole(const std::string& what, std::string_view text, int64_t least, int64_t most) {
  int64_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last || value < least || value > most) {
    throw UsageError(
        fmt::format("{} {}: expected a whole number from {} to {}", what, text, least, most));
  }
  return value;
}

double parse_real(const std::string& what, std::string_view text, double least, double most) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  // Not "value < least || value > most": NaN is neither.
  if (error != std::errc() || end != last || !(value >= least && value <= most)) {
    throw UsageError(
        fmt::format("{} {}: expected a number from {} to {}", what, text, least, most));
  }
  return value;
}

}  // namespace quern::bench
