#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace quern::jit {

static_assert(std::endian::native == std::endian::little, "the formats below are little-endian");

/// Bytes of a file format, put together field by field.
class ByteBuffer {
 public:
  template <typename Int>
  void put(Int value) {
    put_bytes(&value, sizeof value);
  }
  void put_bytes(const void* data, size_t n) { bytes_.append(static_cast<const char*>(data), n); }
  /// With the final zero byte.
  void put_string(std::string_view text) {
    put_bytes(text.data(), text.size());
    put(uint8_t{0});
  }
  /// DWARF's unsigned numbers of variable length.
  void put_uleb(uint64_t value) {
    for (; value >= 0x80; value >>= 7) put(static_cast<uint8_t>(value | 0x80));
    put(static_cast<uint8_t>(value));
  }
  void pad_to(size_t multiple, uint8_t with = 0) {
    while (bytes_.size() % multiple != 0) put(with);
  }
  /// Over what is already there.
  template <typename Int>
  void put_at(size_t at, Int value) {
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }

  size_t size() const { return bytes_.size(); }
  const char* data() const { return bytes_.data(); }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

}  // namespace quern::jit
