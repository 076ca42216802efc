#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "quern/isa.h"

namespace quern::bench {

/// What is measured of a machine.
enum class Roof {
  kDram,     ///< reading memory
  kVnni,     ///< vpdpbusd
  kBf16Dot,  ///< vdpbf16ps
  kF32Fma,   ///< vfmadd231ps
  kAmxInt8,  ///< tdpbusd
  kAmxBf16,  ///< tdpbf16ps
};
constexpr size_t kRoofCount = 6;

struct RoofName {
  Roof roof;
  const char* key;    ///< in JSON
  const char* label;  ///< for people
  const char* unit;
};
/// In the order of the enum.
extern const std::array<RoofName, kRoofCount> kRoofNames;

/// What this machine can do with a number of threads, measured by roofs.h: 10^9 bytes a second, or
/// 10^9 operations a second where a multiply and an add count as two. Zero: not measured.
struct Roofs {
  int threads = 0;
  std::array<double, kRoofCount> rates{};

  double& operator[](Roof roof) { return rates[static_cast<size_t>(roof)]; }
  double operator[](Roof roof) const { return rates[static_cast<size_t>(roof)]; }
};

/// Which arithmetic a problem is made of.
enum class Peak { kNone, kInt8, kBf16 };

/// What one call has to do at least.
struct Work {
  double ops = 0;    ///< multiplies and adds
  double bytes = 0;  ///< GEMM: the packed weights, scales included; quantize_rows: input and output
  Peak peak = Peak::kNone;
  bool from_memory = false;          ///< the bytes come from memory, not from a cache
  IsaLevel level = IsaLevel::kNone;  ///< of the kernel: only kAmx is held to the tile unit
  /// GB/s at which memory was read between the blocks that were timed. Takes the place of the run's
  /// DRAM roof, from which a shared machine strays within a minute. 0: not measured.
  double memory_rate = 0;
  double memory_mad = 0;  ///< of the rates it is the median of
};

/// The shortest time the roofs allow, and which roof says so.
struct Floor {
  double us = 0;           ///< 0: no roof is known for this problem
  const char* bound = "";  ///< "DRAM", "int8", "bf16"
};

/// The peak of `work`'s arithmetic at its level, the best instruction that there is for it: bf16
/// may be multiplied by vdpbf16ps or, converted, by vfmadd231ps, and which is faster depends on the
/// CPU. 0: not measured.
double peak_of(const Work& work, const Roofs& roofs);

Floor floor_of(const Work& work, const Roofs& roofs);

/// 100 when `us` is the floor itself; 0 where there is no floor or no time.
double percent_of(const Floor& floor, double us);

/// The roofs a run is held to: the mean of the two measurements, roof by roof; the one there is
/// where the other was not made.
Roofs mean(const Roofs& before, const Roofs& after);

/// One sentence for each roof that differs by more than `tolerance` (0.05) between the two; empty
/// when the machine stood still.
std::vector<std::string> moved(const Roofs& before, const Roofs& after, double tolerance = 0.05);

}  // namespace quern::bench
