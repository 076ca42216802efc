#include "model_smoke/host_info.h"

#include <sched.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

namespace quern::smoke {
namespace {

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return line;
}

std::optional<double> number_in(const std::string& path) {
  const auto line = first_line(path);
  if (!line) return std::nullopt;
  std::istringstream text(*line);
  double value = 0;
  if (!(text >> value)) return std::nullopt;
  return value;
}

/// This process's group below the cgroup mount: "0::/a/b" of version 2, or the line of
/// `controller`.
std::string cgroup_path(const std::string& controller) {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string list = line.substr(first + 1, second - first - 1);
    if (list == controller || (controller.empty() && list.empty())) return line.substr(second + 1);
  }
  return "/";
}

/// A limit may sit at the group or at any of its parents, and a container may see its group as "/".
template <typename F>
void for_group_and_parents(const std::string& mount, std::string group, F&& f) {
  for (;;) {
    f(mount + (group == "/" ? "" : group));
    if (group.empty() || group == "/") return;
    group.erase(group.rfind('/'));
    if (group.empty()) group = "/";
  }
}

void read_cgroup(HostInfo& host) {
  const auto limit_cpus = [&host](double cpus, const std::string& source) {
    if (cpus > 0 && (!host.cgroup_cpus || cpus < *host.cgroup_cpus)) {
      host.cgroup_cpus = cpus;
      host.cgroup_source = source;
    }
  };
  const auto limit_memory = [&host](double bytes) {
    // Version 1 says "no limit" with a number near 2^63.
    if (bytes <= 0 || bytes > 0x1p60) return;
    const auto value = static_cast<uint64_t>(bytes);
    host.cgroup_memory_bytes = std::min(value, host.cgroup_memory_bytes.value_or(value));
  };
  for_group_and_parents("/sys/fs/cgroup", cgroup_path(""), [&](const std::string& dir) {
    if (const auto line = first_line(dir + "/cpu.max")) {
      std::istringstream text(*line);
      double quota = 0, period = 0;
      if (text >> quota >> period && period > 0) limit_cpus(quota / period, dir + "/cpu.max");
    }
    if (const auto bytes = number_in(dir + "/memory.max")) limit_memory(*bytes);
  });
  for_group_and_parents("/sys/fs/cgroup/cpu", cgroup_path("cpu,cpuacct"),
                        [&](const std::string& dir) {
                          const auto quota = number_in(dir + "/cpu.cfs_quota_us");
                          const auto period = number_in(dir + "/cpu.cfs_period_us");
                          if (quota && period && *period > 0)
                            limit_cpus(*quota / *period, dir + "/cpu.cfs_quota_us");
                        });
  for_group_and_parents("/sys/fs/cgroup/memory", cgroup_path("memory"),
                        [&](const std::string& dir) {
                          if (const auto bytes = number_in(dir + "/memory.limit_in_bytes"))
                            limit_memory(*bytes);
                        });
}

void read_memory(HostInfo& host) {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    std::istringstream text(line);
    std::string key;
    uint64_t kib = 0;
    if (!(text >> key >> kib)) continue;
    if (key == "MemTotal:") host.memory_bytes = kib * 1024;
    if (key == "MemAvailable:") host.memory_available_bytes = kib * 1024;
  }
}

}  // namespace

HostInfo read_host_info() {
  HostInfo host;
  host.online_cpus = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  host.affinity_cpus = host.online_cpus;
  // Machines with more than 1024 CPUs refuse the fixed-size mask; then every CPU counts.
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) host.affinity_cpus = CPU_COUNT(&set);
  read_cgroup(host);
  read_memory(host);
  if (const auto line = first_line("/sys/kernel/mm/transparent_hugepage/enabled")) {
    const size_t open = line->find('['), close = line->find(']');
    if (open != std::string::npos && close != std::string::npos && close > open) {
      host.transparent_huge_pages = line->substr(open + 1, close - open - 1);
    }
  }
  host.mxcsr = _mm_getcsr();
  return host;
}

int usable_cpus(const HostInfo& host) {
  int cpus = std::max(1, host.affinity_cpus);
  if (host.cgroup_cpus) {
    cpus = std::min(cpus, std::max(1, static_cast<int>(std::floor(*host.cgroup_cpus))));
  }
  return std::min(cpus, 1024);
}

}  // namespace quern::smoke
