#pragma once

#include <cstdint>

#include "tests/support/amx_decode.h"

namespace quern::amx_emu {

/// What is counted besides each Op.
enum class Count : uint8_t {
  kTraps,        ///< signals handled; with batching fewer than instructions
  kFaults,       ///< instructions refused, by the architecture's rules or by strict ones
  kBytesLoaded,  ///< tile data
  kBytesStored,
  kMacsIssued,  ///< what the dot products would do on full tiles
  kMacsUseful,  ///< what they did at the sizes configured
  kLeaks,       ///< threads that ended with tiles configured
};
inline constexpr int kCounts = 7;

/// Numbers of instructions executed and of events. Deterministic for a program, apart from kTraps
/// when gdb steps. They say nothing about time.
struct Counters {
  uint64_t ops[kOps] = {};
  uint64_t counts[kCounts] = {};

  uint64_t operator[](Op op) const { return ops[static_cast<int>(op)]; }
  uint64_t operator[](Count c) const { return counts[static_cast<int>(c)]; }

  uint64_t instructions() const {
    uint64_t sum = 0;
    for (const uint64_t n : ops) sum += n;
    return sum;
  }
  uint64_t loads() const { return (*this)[Op::kTileloadd] + (*this)[Op::kTileloaddt1]; }
  uint64_t dots() const {
    uint64_t sum = 0;
    for (int i = 0; i < kOps; ++i) sum += is_dot(static_cast<Op>(i)) ? ops[i] : 0;
    return sum;
  }
  /// 1.0 for a 2 x 2 block of tiles; 0 without dot products.
  double loads_per_dot() const {
    return dots() == 0 ? 0.0 : static_cast<double>(loads()) / static_cast<double>(dots());
  }
  /// 1.0 when every tile is full; 0 without dot products.
  double utilisation() const {
    const uint64_t issued = (*this)[Count::kMacsIssued];
    return issued == 0
               ? 0.0
               : static_cast<double>((*this)[Count::kMacsUseful]) / static_cast<double>(issued);
  }

  Counters& operator+=(const Counters& other) {
    for (int i = 0; i < kOps; ++i) ops[i] += other.ops[i];
    for (int i = 0; i < kCounts; ++i) counts[i] += other.counts[i];
    return *this;
  }
  /// What happened between two readings.
  Counters operator-(const Counters& earlier) const {
    Counters d = *this;
    for (int i = 0; i < kOps; ++i) d.ops[i] -= earlier.ops[i];
    for (int i = 0; i < kCounts; ++i) d.counts[i] -= earlier.counts[i];
    return d;
  }
  bool operator==(const Counters&) const = default;
};

}  // namespace quern::amx_emu
