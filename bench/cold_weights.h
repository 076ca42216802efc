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

/// A tiny operand cannot be made cold by copies without end; its row then measures call overhead.
constexpr int64_t kMaxColdCopies = 8192;

/// Copies of an operand of `bytes` that are more than `cold_bytes` in all (memory_plan.h).
inline int64_t copies_for(size_t bytes, size_t cold_bytes) {
  const size_t needed = cold_bytes / std::max<size_t>(1, bytes) + 1;
  return std::clamp<int64_t>(static_cast<int64_t>(needed), 2, kMaxColdCopies);
}

/// `make()` once for a hot problem, as often as it takes for a cold one. `bytes_of` says how large
/// the first one is.
template <typename Make, typename BytesOf>
auto make_copies(bool cold, size_t cold_bytes, Make&& make, BytesOf&& bytes_of) {
  std::vector<decltype(make())> copies;
  copies.push_back(make());
  const int64_t count = cold ? copies_for(bytes_of(copies[0]), cold_bytes) : 1;
  while (static_cast<int64_t>(copies.size()) < count) copies.push_back(make());
  return ColdRotation<decltype(make())>(std::move(copies));
}

}  // namespace quern::bench
