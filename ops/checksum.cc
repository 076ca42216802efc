#include "ops/checksum.h"

#include <cstring>

namespace quern::inline v0 {
namespace {

uint64_t mix(uint64_t state, uint64_t word) noexcept {
  state = (state ^ word) * 0x9e3779b97f4a7c15u;
  return state ^ state >> 32;
}

}  // namespace

void LineChecksum::add(const std::byte* lines, size_t count) noexcept {
  uint64_t lanes[kLanes];  // in registers: the members could alias `lines`
  std::memcpy(lanes, lanes_, sizeof lanes);
  for (size_t line = 0; line < count; ++line, lines += kLineBytes) {
    for (int i = 0; i < kLanes; ++i) {
      uint64_t word;
      std::memcpy(&word, lines + i * sizeof word, sizeof word);
      lanes[i] = mix(lanes[i], word);
    }
  }
  std::memcpy(lanes_, lanes, sizeof lanes);
  lines_ += count;
}

uint64_t LineChecksum::value() const noexcept {
  uint64_t folded = 0;
  for (const uint64_t lane : lanes_) folded = mix(folded, lane);
  return mix(folded, lines_);
}

}  // namespace quern::inline v0
