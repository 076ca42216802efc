#include "model_smoke/input_error.h"

namespace quern::smoke {
namespace {

std::string sentence(std::string_view file, std::string_view key, std::string_view expected,
                     std::string_view got, std::string_view hint) {
  std::string s = printable(file) + ": ";
  if (!key.empty()) s += printable(key) + ": ";
  s += "expected " + printable(expected, 1000) + ", got " + printable(got, 1000);
  if (!hint.empty()) s += " (" + printable(hint, 1000) + ")";
  return s;
}

}  // namespace

std::string printable(std::string_view text, size_t max_bytes) {
  static const char kHex[] = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    // Never cut inside a UTF-8 character: its bytes after the first are 10xxxxxx.
    const auto c = static_cast<unsigned char>(text[i]);
    if (out.size() >= max_bytes && (c & 0xc0) != 0x80) return out + "...";
    if (c < 0x20 || c == 0x7f) {
      out += {'\\', 'x', kHex[c >> 4], kHex[c & 15]};
    } else {
      out += text[i];
    }
  }
  return out;
}

InputError::InputError(std::string_view in_file, std::string_view in_key,
                       std::string_view in_expected, std::string_view in_got,
                       std::string_view in_hint)
    : std::runtime_error(sentence(in_file, in_key, in_expected, in_got, in_hint)),
      file(printable(in_file)),
      key(printable(in_key)),
      expected(printable(in_expected, 1000)),
      got(printable(in_got, 1000)),
      hint(printable(in_hint, 1000)) {}

}  // namespace quern::smoke
