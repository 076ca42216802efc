#include "model_smoke/utf8.h"

namespace quern::smoke {
namespace {

struct Step {
  size_t bytes;   // looked at: of a character, or of a maximal ill-formed part
  bool complete;  // a whole character
  bool cut_off;   // well-formed so far, and the text ends
};

// The character at the start of `s`, which is not empty (table 3-7 of the Unicode standard).
Step step(std::string_view s) noexcept {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char a = byte(0);
  if (a < 0x80) return {1, true, false};
  size_t need = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xbf;
  if (a >= 0xc2 && a <= 0xdf) {
    need = 2;
  } else if (a >= 0xe0 && a <= 0xef) {
    need = 3;
    if (a == 0xe0) low = 0xa0;
    if (a == 0xed) high = 0x9f;
  } else if (a >= 0xf0 && a <= 0xf4) {
    need = 4;
    if (a == 0xf0) low = 0x90;
    if (a == 0xf4) high = 0x8f;
  } else {
    return {1, false, false};
  }
  for (size_t i = 1; i < need; ++i) {
    if (i == s.size()) return {i, false, true};
    if (byte(i) < low || byte(i) > high) return {i, false, false};
    low = 0x80;
    high = 0xbf;
  }
  return {need, true, false};
}

}  // namespace

size_t valid_utf8_prefix(std::string_view text) noexcept {
  size_t at = 0;
  while (at < text.size()) {
    const Step s = step(text.substr(at));
    if (!s.complete) break;
    at += s.bytes;
  }
  return at;
}

size_t incomplete_utf8_tail(std::string_view text) noexcept {
  for (size_t n = 1; n <= 3 && n <= text.size(); ++n) {
    const std::string_view tail = text.substr(text.size() - n);
    const auto lead = static_cast<unsigned char>(tail.front());
    if ((lead & 0xc0) == 0x80) continue;  // inside a character: look further left
    const Step s = step(tail);
    return s.cut_off && s.bytes == n ? n : 0;
  }
  return 0;
}

std::string replace_ill_formed(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t good = valid_utf8_prefix(bytes);
    out += bytes.substr(0, good);
    bytes.remove_prefix(good);
    if (bytes.empty()) break;
    out += "\xef\xbf\xbd";
    bytes.remove_prefix(step(bytes).bytes);
  }
  return out;
}

void append_utf8(char32_t c, std::string* out) {
  const auto put = [&](char32_t v) { *out += static_cast<char>(static_cast<unsigned char>(v)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | (c >> 6));
    put(0x80 | (c & 63));
  } else if (c < 0x10000) {
    put(0xe0 | (c >> 12));
    put(0x80 | ((c >> 6) & 63));
    put(0x80 | (c & 63));
  } else {
    put(0xf0 | (c >> 18));
    put(0x80 | ((c >> 12) & 63));
    put(0x80 | ((c >> 6) & 63));
    put(0x80 | (c & 63));
  }
}

}  // namespace quern::smoke
