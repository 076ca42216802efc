#include "model_smoke/option_values.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "model_smoke/input_error.h"

namespace quern::smoke {
namespace {

std::string quoted(std::string_view text) {
  return "\"" + std::string(text) + "\"";
}

/// The digits of `text`; false when it is anything else or does not fit.
bool read_digits(std::string_view text, uint64_t* out) {
  // from_chars alone would take "-0" for types with a sign; digits are all that counts here.
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

uint64_t parse_integer(std::string_view option, std::string_view text, uint64_t min, uint64_t max) {
  uint64_t value = 0;
  if (!read_digits(text, &value) || value < min || value > max) {
    throw InputError(option, "", fmt::format("an integer from {} to {}", min, max), quoted(text));
  }
  return value;
}

double parse_number(std::string_view option, std::string_view text, double min, double max) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  // "nan" and "inf" are numbers to from_chars; the comparison is written so that NaN fails.
  if (!whole || !(value >= min && value <= max)) {
    throw InputError(option, "", fmt::format("a number from {} to {}", min, max), quoted(text));
  }
  return value;
}

std::vector<int32_t> parse_ids(std::string_view option, std::string_view text) {
  constexpr uint64_t kMaxId = INT32_MAX;
  std::vector<int32_t> ids;
  for (size_t begin = 0;;) {
    const size_t comma = text.find(',', begin);
    const std::string_view part = text.substr(begin, comma - begin);
    uint64_t id = 0;
    if (!read_digits(part, &id) || id > kMaxId) {
      throw InputError(option, fmt::format("part {}", ids.size() + 1),
                       fmt::format("token ids from 0 to {} joined by commas, as in 1,2,3", kMaxId),
                       part.empty() ? "nothing" : quoted(part));
    }
    ids.push_back(static_cast<int32_t>(id));
    if (comma == std::string_view::npos) return ids;
    begin = comma + 1;
  }
}

}  // namespace quern::smoke
