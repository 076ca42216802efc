#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/context_set.h"

namespace quern::bench {

/// What somebody needs who wants to compare two runs: CPU, ISA stages, threads, kernel, memory
/// pages, revision and build of quern, and the Google Benchmark that was linked.
std::vector<std::pair<std::string, std::string>> host_info(const ContextSet& contexts);

/// The revision of quern that was built, "+changes" where the tree differs from it.
std::string revision();

}  // namespace quern::bench
