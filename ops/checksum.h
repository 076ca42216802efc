#pragma once

#include <cstddef>
#include <cstdint>

namespace quern::inline v0 {

/// A 64-bit checksum over whole lines of 64 bytes, at the speed of memory: eight lanes, lane i
/// takes the i-th little-endian 64-bit word w of every line:
///   lane = (lane ^ w) * 0x9e3779b97f4a7c15;  lane = lane ^ (lane >> 32)
/// starting at i + 1; value() folds the lanes in order, and then the number of lines, in the same
/// way into a word that starts at 0. Each step can be undone, so a change within one word is always
/// found; larger ones escape with probability 2^-64. Against accidents, not against malice.
class LineChecksum {
 public:
  static constexpr size_t kLineBytes = 64;

  void add(const std::byte* lines, size_t count) noexcept;
  uint64_t value() const noexcept;

 private:
  static constexpr int kLanes = 8;
  uint64_t lanes_[kLanes] = {1, 2, 3, 4, 5, 6, 7, 8};
  uint64_t lines_ = 0;
};

}  // namespace quern::inline v0
