#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quern::smoke {

// Values of switches, read strictly: the whole text counts, so "1e3", "+5", " 5" and "5 " are no
// integers, and what does not fit the range is an error, never the nearest value that does. Each
// throws InputError naming the switch, the rule and the value.

/// An integer of digits alone.
uint64_t parse_integer(std::string_view option, std::string_view text, uint64_t min, uint64_t max);

/// A finite number, plain or with an exponent, always with a point as the decimal sign.
double parse_number(std::string_view option, std::string_view text, double min, double max);

/// Token ids joined by commas: "1,2,3". The vocabulary is for the caller to check.
std::vector<int32_t> parse_ids(std::string_view option, std::string_view text);

}  // namespace quern::smoke
