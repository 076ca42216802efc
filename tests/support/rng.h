#pragma once

#include <cstdint>
#include <iterator>

namespace quern::test {

/// splitmix64: turns any seed, also 0, 1, 2, ..., into well-mixed bits.
inline uint64_t splitmix64(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// xoshiro256**, the same numbers on every machine and with every standard library.
class Rng {
 public:
  explicit Rng(uint64_t seed) {
    for (uint64_t& s : state_) s = splitmix64(seed);
  }

  uint64_t next() {
    const uint64_t result = rotl(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotl(state_[3], 45);
    return result;
  }

  /// Uniform in [low, high]. The bias of the remainder (below 2^-32 here) does not matter to tests.
  int64_t in(int64_t low, int64_t high) {
    const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
    return span == 0 ? static_cast<int64_t>(next())
                     : static_cast<int64_t>(static_cast<uint64_t>(low) + next() % span);
  }
  bool one_in(int n) { return in(1, n) == 1; }
  /// Uniform in [-1, 1).
  float unit() { return static_cast<float>(static_cast<double>(next() >> 11) * 0x1p-52 - 1.0); }

  template <typename Container>
  auto pick(const Container& values) {
    auto it = std::begin(values);
    std::advance(it, in(0, static_cast<int64_t>(std::size(values)) - 1));
    return *it;
  }

 private:
  static uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  uint64_t state_[4];
};

}  // namespace quern::test
