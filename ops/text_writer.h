#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace quern::inline v0 {

/// Puts text together in somebody else's buffer: no allocation, no locale. What does not fit is
/// counted but not written, so that a caller can ask again with a larger buffer.
class TextWriter {
 public:
  TextWriter(char* buffer, size_t capacity) noexcept : buffer_(buffer), capacity_(capacity) {}

  void text(std::string_view s) noexcept {
    const size_t room = capacity_ - size();
    const size_t n = s.size() < room ? s.size() : room;
    if (n != 0) std::memcpy(buffer_ + size(), s.data(), n);
    needed_ += s.size();
  }
  void number(int64_t v) noexcept {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, v).ptr;
    text({digits, static_cast<size_t>(end - digits)});
  }

  /// Bytes written, and bytes that would have been with room enough.
  size_t size() const noexcept { return needed_ < capacity_ ? needed_ : capacity_; }
  size_t needed() const noexcept { return needed_; }
  bool truncated() const noexcept { return needed_ > capacity_; }
  char* data() const noexcept { return buffer_; }

 private:
  char* buffer_;
  size_t capacity_;
  size_t needed_ = 0;
};

/// What `write(TextWriter*)` writes, as a string of the right size.
template <typename Write>
std::string to_text(Write write) {
  std::string text(256, '\0');
  for (;;) {
    TextWriter out(text.data(), text.size());
    write(&out);
    const bool complete = !out.truncated();
    text.resize(out.needed());
    if (complete) return text;
  }
}

}  // namespace quern::inline v0
