#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace quern::bench {

/// Copies of an operand, visited in turn. When the copies together are larger than any cache, each
/// call finds its operand in memory only, as a model does that walks through all its layers between
/// two uses of a weight.
template <typename Operand>
class ColdRotation {
 public:
  /// `copies` from copies_for().
  explicit ColdRotation(std::vector<Operand> copies) : copies_(std::move(copies)) {}

  const Operand& at(int64_t call) const {
    return copies_[static_cast<size_t>(call) % copies_.size()];
  }
  int64_t size() const { return static_cast<int64_t>(copies_.size()); }

 private:
  std::vector<Operand> copies_;
};

/// More than 320 MB in all: ten times the last-level cache slice of the largest desktop parts and
/// beyond the L3 of most server packages.
constexpr int64_t kColdBytes = int64_t{320} << 20;
/// A tiny operand cannot be made cold by copies without end; its row then measures call overhead.
constexpr int64_t kMaxColdCopies = 8192;

/// One copy when `cold` is false.
inline int64_t copies_for(size_t bytes, bool cold) {
  if (!cold) return 1;
  const int64_t needed = kColdBytes / std::max<int64_t>(1, static_cast<int64_t>(bytes)) + 1;
  return std::clamp<int64_t>(needed, 2, kMaxColdCopies);
}

}  // namespace quern::bench
