#include "bench/timing.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

namespace quern::bench {
namespace {

double to_seconds(const timespec& t) {
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double clock_seconds(clockid_t clock) {
  timespec t{};
  return clock_gettime(clock, &t) == 0 ? to_seconds(t) : 0;
}

// user, nice, system, irq, softirq and steal of the first line; idle and iowait are not work.
double machine_busy_seconds() {
  std::ifstream stat("/proc/stat");
  std::string cpu;
  double ticks[8] = {};
  stat >> cpu;
  for (double& t : ticks) stat >> t;
  if (!stat) return 0;
  const double busy = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7];
  return busy / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

double median(std::vector<double> samples) {
  if (samples.empty()) return 0;
  const auto middle = samples.begin() + static_cast<ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  if (samples.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(samples.begin(), middle)) / 2;
}

Stats summarize(const std::vector<double>& samples) {
  Stats stats;
  stats.count = static_cast<int64_t>(samples.size());
  stats.median = median(samples);
  std::vector<double> distance;
  distance.reserve(samples.size());
  for (double s : samples) distance.push_back(std::abs(s - stats.median));
  stats.mad = median(std::move(distance));
  return stats;
}

CpuUse CpuUse::now(pid_t peer) {
  CpuUse use;
  use.wall = clock_seconds(CLOCK_MONOTONIC);
  use.all = machine_busy_seconds();
  use.ours = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
  clockid_t clock{};
  if (peer > 0 && clock_getcpuclockid(peer, &clock) == 0) use.peer = clock_seconds(clock);
  return use;
}

double foreign_cpus(const CpuUse& begin, const CpuUse& end) {
  const double wall = end.wall - begin.wall;
  if (wall <= 0) return 0;
  const double others = (end.all - begin.all) - (end.ours - begin.ours) - (end.peer - begin.peer);
  return std::max(0.0, others / wall);
}

}  // namespace quern::bench
