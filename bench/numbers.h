#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace quern::bench {

/// A decimal whole number in [least, most] and nothing else: no sign, no 0x, no fraction. Throws
/// UsageError that starts with `what` and quotes the text.
int64_t parse_whole(const std::string& what, std::string_view text, int64_t least, int64_t most);

/// A finite decimal number in [least, most] and nothing else.
double parse_real(const std::string& what, std::string_view text, double least, double most);

}  // namespace quern::bench
