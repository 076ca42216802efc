#pragma once

#include <cstddef>
#include <vector>

#include "bench/roofline.h"
#include "quern/isa.h"

namespace quern::bench {

/// Measures what the machine can do now: how fast memory can be read (four streams a thread with
/// prefetch, over a buffer no cache holds) and how fast the dot-product instructions issue when
/// they only touch registers. Takes under a second for a thread count.
class RoofMeter {
 public:
  /// `report` says which instructions may be executed; the peaks of others stay 0.
  explicit RoofMeter(const IsaReport& report);
  ~RoofMeter();
  RoofMeter(const RoofMeter&) = delete;
  RoofMeter& operator=(const RoofMeter&) = delete;

  Roofs measure(int threads) const;

 private:
  bool int8_ = false;
  bool bf16_ = false;
  std::vector<int> cpus_;  ///< of the affinity mask; thread i runs on the i-th
  std::byte* buffer_ = nullptr;
};

}  // namespace quern::bench
