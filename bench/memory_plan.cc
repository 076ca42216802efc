#include "bench/memory_plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace quern::bench {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kLeastCold = 512 * kMiB;
// With less than this nothing is cold anywhere; a machine so small gets wrong percentages, and the
// report says so.
constexpr size_t kSmallestCold = 64 * kMiB;
constexpr size_t kUnknownCache =
    32 * kMiB;  // streaming falls off there on CPUs that hide their sizes
constexpr size_t kLargestBelievable = size_t{8} << 30;

size_t reported_llc() {
  size_t largest = 0;
  for (int i = 0; i < 8; ++i) {
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", i));
    size_t kib = 0;
    char unit = 0;
    if (!(file >> kib >> unit)) continue;
    largest = std::max(largest, unit == 'M' ? kib * kMiB : kib * 1024);
  }
  if (largest == 0) largest = static_cast<size_t>(std::max(0L, sysconf(_SC_LEVEL3_CACHE_SIZE)));
  return largest <= kLargestBelievable ? largest : 0;
}

size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string key, unit; file >> key;) {
    size_t kib = 0;
    file >> kib;
    std::getline(file, unit);
    if (key == "MemAvailable:") return kib * 1024;
  }
  return static_cast<size_t>(std::max(0L, sysconf(_SC_AVPHYS_PAGES))) *
         static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

MemoryPlan plan_memory(size_t reported, size_t available) {
  MemoryPlan plan;
  plan.llc_bytes = reported;
  plan.cache_bytes = std::max(kUnknownCache, reported);
  const size_t wanted = std::max(kLeastCold, 2 * reported);
  const size_t budget = std::max(kSmallestCold, available / 8 / kMiB * kMiB);
  plan.cold_bytes = std::min(wanted, budget);
  plan.short_of_memory = budget < wanted;
  return plan;
}

MemoryPlan plan_memory() {
  return plan_memory(reported_llc(), available_memory());
}

std::string describe(const MemoryPlan& plan) {
  const std::string cache = plan.llc_bytes == 0 ? "no last-level cache is reported"
                                                : fmt::format("last-level cache {} MiB as reported",
                                                              plan.llc_bytes / kMiB);
  std::string out =
      fmt::format("cold set and DRAM buffer {} MiB each ({})", plan.cold_bytes / kMiB, cache);
  if (plan.short_of_memory) {
    out += "; LESS than the rule asks for, memory is short: cold rows may be cached";
  }
  return out;
}

}  // namespace quern::bench
