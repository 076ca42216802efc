#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace quern::smoke {

/// What the operating system lets this process use. Fields that cannot be read stay empty.
struct HostInfo {
  int online_cpus = 0;
  int affinity_cpus = 0;
  std::optional<double> cgroup_cpus;  ///< quota / period; none: no limit
  std::string cgroup_source;          ///< the file the quota came from
  std::optional<uint64_t> memory_bytes, memory_available_bytes, cgroup_memory_bytes;
  std::string transparent_huge_pages;  ///< "madvise", the chosen word of the kernel's list
  uint32_t mxcsr = 0;
};

HostInfo read_host_info();

/// CPUs that are worth a thread each: the affinity mask, less where a cgroup quota allows fewer.
int usable_cpus(const HostInfo& host);

}  // namespace quern::smoke
