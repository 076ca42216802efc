#include "bench/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace quern::bench {

const std::array<RoofName, kRoofCount> kRoofNames = {{
    {Roof::kDram, "dram_gbps", "DRAM read", "GB/s"},
    {Roof::kVnni, "vpdpbusd_gops", "int8 (vpdpbusd)", "GOP/s"},
    {Roof::kBf16Dot, "vdpbf16ps_gops", "bf16 (vdpbf16ps)", "GOP/s"},
    {Roof::kF32Fma, "vfmadd231ps_gops", "f32 (vfmadd231ps)", "GOP/s"},
    {Roof::kAmxInt8, "tdpbusd_gops", "int8 (tdpbusd)", "GOP/s"},
    {Roof::kAmxBf16, "tdpbf16ps_gops", "bf16 (tdpbf16ps)", "GOP/s"},
}};

double peak_of(const Work& work, const Roofs& roofs) {
  const bool amx = work.level >= IsaLevel::kAmx;
  switch (work.peak) {
    case Peak::kInt8:
      return std::max(roofs[Roof::kVnni], amx ? roofs[Roof::kAmxInt8] : 0);
    case Peak::kBf16:
      return std::max(
          {roofs[Roof::kBf16Dot], roofs[Roof::kF32Fma], amx ? roofs[Roof::kAmxBf16] : 0});
    case Peak::kNone:
      break;
  }
  return 0;
}

Floor floor_of(const Work& work, const Roofs& roofs) {
  Floor floor;
  const double memory = work.memory_rate > 0 ? work.memory_rate : roofs[Roof::kDram];
  if (work.from_memory && memory > 0) floor = {work.bytes / memory * 1e-3, "DRAM"};
  const double peak = peak_of(work, roofs);
  if (peak > 0) {
    const double us = work.ops / peak * 1e-3;
    if (us > floor.us) floor = {us, work.peak == Peak::kInt8 ? "int8" : "bf16"};
  }
  return floor;
}

double percent_of(const Floor& floor, double us) {
  return floor.us > 0 && us > 0 ? 100 * floor.us / us : 0;
}

Roofs mean(const Roofs& before, const Roofs& after) {
  Roofs out{before.threads, {}};
  for (size_t i = 0; i < kRoofCount; ++i) {
    const double a = before.rates[i], b = after.rates[i];
    out.rates[i] = a > 0 && b > 0 ? (a + b) / 2 : std::max(a, b);
  }
  return out;
}

std::vector<std::string> moved(const Roofs& before, const Roofs& after, double tolerance) {
  std::vector<std::string> out;
  for (const RoofName& name : kRoofNames) {
    const double a = before[name.roof], b = after[name.roof];
    if (a <= 0 || b <= 0 || std::abs(b - a) <= tolerance * a) continue;
    out.push_back(fmt::format("{} moved from {:.1f} to {:.1f} {} ({:+.1f} %)", name.label, a, b,
                              name.unit, 100 * (b - a) / a));
  }
  return out;
}

}  // namespace quern::bench
