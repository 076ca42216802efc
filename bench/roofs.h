#pragma once

#include <cstddef>
#include <vector>

#include "bench/roofline.h"
#include "quern/isa.h"

namespace quern::bench {

/// Measures what the machine can do now: how fast memory can be read (the best of a few patterns,
/// over a buffer no cache holds) and how fast the dot-product instructions issue when they only
/// touch registers. Takes one to two seconds for a thread count.
class RoofMeter {
 public:
  /// `report` says which instructions may be executed; the peaks of others stay 0. `buffer_bytes`:
  /// MemoryPlan::cold_bytes.
  RoofMeter(const IsaReport& report, size_t buffer_bytes);
  ~RoofMeter();
  RoofMeter(const RoofMeter&) = delete;
  RoofMeter& operator=(const RoofMeter&) = delete;

  /// `threads` from 1 to the number of CPUs.
  Roofs measure(int threads) const;
  /// The DRAM roof alone, from few windows: some 30 ms.
  double memory_now(int threads) const;

 private:
  double read_gbps(int threads, int windows_of_each_way) const;

  IsaLevel level_ = IsaLevel::kNone;
  bool bf16_ = false;
  std::vector<int> cpus_;  ///< of the affinity mask; thread i runs on the i-th
  size_t buffer_bytes_ = 0;
  std::byte* buffer_ = nullptr;
};

}  // namespace quern::bench
