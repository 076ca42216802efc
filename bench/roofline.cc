#include "bench/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace quern::bench {
namespace {

// Streaming falls off between 24 and 48 MiB on the CPUs this was measured on.
constexpr double kCacheBytes = 32.0 * 1024 * 1024;

void compare(const char* what, const char* unit, double a, double b, double tolerance,
             std::vector<std::string>* out) {
  if (a <= 0 || b <= 0) return;
  const double change = (b - a) / a;
  if (std::abs(change) <= tolerance) return;
  out->push_back(
      fmt::format("{} moved from {:.1f} to {:.1f} {} ({:+.1f} %)", what, a, b, unit, 100 * change));
}

}  // namespace

Floor floor_of(const Work& work, const Roofs& roofs) {
  Floor floor;
  if (work.from_memory && roofs.dram_gbps > 0) {
    floor = {work.bytes / roofs.dram_gbps * 1e-3, "DRAM"};
  }
  const bool int8 = work.peak == Peak::kInt8;
  const double peak = int8 ? roofs.int8_gops : work.peak == Peak::kBf16 ? roofs.bf16_gops : 0;
  if (peak > 0) {
    const double us = work.ops / peak * 1e-3;
    if (us > floor.us) floor = {us, int8 ? "int8" : "bf16"};
  }
  return floor;
}

double percent_of(const Floor& floor, double us) {
  return floor.us > 0 && us > 0 ? 100 * floor.us / us : 0;
}

bool comes_from_memory(double bytes, bool cold) {
  return cold || bytes > kCacheBytes;
}

Roofs mean(const Roofs& before, const Roofs& after) {
  return {before.threads, (before.dram_gbps + after.dram_gbps) / 2,
          (before.int8_gops + after.int8_gops) / 2, (before.bf16_gops + after.bf16_gops) / 2};
}

std::vector<std::string> moved(const Roofs& before, const Roofs& after, double tolerance) {
  std::vector<std::string> out;
  compare("DRAM bandwidth", "GB/s", before.dram_gbps, after.dram_gbps, tolerance, &out);
  compare("int8 peak", "GOP/s", before.int8_gops, after.int8_gops, tolerance, &out);
  compare("bf16 peak", "GOP/s", before.bf16_gops, after.bf16_gops, tolerance, &out);
  return out;
}

}  // namespace quern::bench
