#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quern::smoke {

/// Bytes at the start of `text` that are valid UTF-8 (no surrogates, no overlong forms, at most
/// U+10FFFF). Equal to text.size() when all of it is.
size_t valid_utf8_prefix(std::string_view text) noexcept;

/// Bytes at the end that could be the beginning of a character: 0 to 3.
size_t incomplete_utf8_tail(std::string_view text) noexcept;

/// Every maximal ill-formed part becomes one U+FFFD (Unicode chapter 3, "U+FFFD Substitution of
/// Maximal Subparts"; what Rust's from_utf8_lossy does, so what the tokenizers library does).
std::string replace_ill_formed(std::string_view bytes);

/// Appends one code point.
void append_utf8(char32_t c, std::string* out);

}  // namespace quern::smoke
