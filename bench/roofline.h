#pragma once

#include <string>
#include <vector>

namespace quern::bench {

/// What this machine can do with a number of threads, measured by roofs.h. Zero: not measured.
struct Roofs {
  int threads = 0;
  double dram_gbps = 0;  ///< reading, 10^9 bytes a second
  double int8_gops = 0;  ///< vpdpbusd, a multiply and an add count as two
  double bf16_gops = 0;  ///< vdpbf16ps
};

/// Which arithmetic a problem is made of.
enum class Peak { kNone, kInt8, kBf16 };

/// What one call has to do at least.
struct Work {
  double ops = 0;    ///< multiplies and adds
  double bytes = 0;  ///< GEMM: the packed weights, scales included; quantize_rows: input and output
  Peak peak = Peak::kNone;
  bool from_memory = false;  ///< the bytes come from memory, not from a cache
};

/// The shortest time the roofs allow, and which roof says so.
struct Floor {
  double us = 0;           ///< 0: no roof is known for this problem
  const char* bound = "";  ///< "DRAM", "int8", "bf16"
};

Floor floor_of(const Work& work, const Roofs& roofs);

/// 100 when `us` is the floor itself; 0 where there is no floor or no time.
double percent_of(const Floor& floor, double us);

/// Whether bytes that are used call after call still have to come from memory: false for what a
/// last-level cache can hold. The limit is a measured 32 MiB and not CPUID's word, which virtual
/// machines mask or replace by the sum over a package.
bool comes_from_memory(double bytes, bool cold);

/// The roofs a run is held to: the mean of the two measurements, field by field.
Roofs mean(const Roofs& before, const Roofs& after);

/// One sentence for each roof that differs by more than `tolerance` (0.05) between the two; empty
/// when the machine stood still.
std::vector<std::string> moved(const Roofs& before, const Roofs& after, double tolerance = 0.05);

}  // namespace quern::bench
