#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quern/dtype.h"

namespace quern::jit {

/// Kernel names are dot-separated words; these are the pieces that every Config's to_string and
/// parse share. parse functions return nothing for text that to_string would not have written.
std::vector<std::string_view> split_name(std::string_view name);

/// "mr6" with prefix "mr" -> 6. Decimal, no sign, no leading zero, at most 9 digits.
std::optional<int> parse_field(std::string_view word, std::string_view prefix);

/// "s8u8bf16" -> {kS8, kU8, kBF16}.
std::optional<std::vector<DType>> parse_dtypes(std::string_view word);

}  // namespace quern::jit
