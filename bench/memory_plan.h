#pragma once

#include <cstddef>
#include <string>

namespace quern::bench {

/// How many bytes "from memory" takes on this machine. Cold rows rotate among copies of
/// `cold_bytes` in all and the DRAM roof reads a buffer of the same size, so that what little of
/// either a cache keeps is the same for both.
struct MemoryPlan {
  size_t llc_bytes = 0;  ///< last-level cache as the system says; 0: it says nothing
  size_t cache_bytes = size_t{32} << 20;  ///< a hot operand up to this size may live in a cache
  size_t cold_bytes = size_t{512} << 20;
  bool short_of_memory = false;  ///< memory did not allow the cold bytes that the rule asks for
};

/// The rule: twice the reported last-level cache, at least 512 MiB, at most an eighth of the memory
/// that is available (the roof's buffer, our copies and the peer's copies exist at once). Virtual
/// machines report the cache of a whole package or none at all: the first makes the set larger than
/// needed, the second is what the 512 MiB are for.
MemoryPlan plan_memory(size_t reported_llc, size_t available);
/// Of this machine, now.
MemoryPlan plan_memory();

/// "cold set and DRAM buffer 960 MiB (twice the last-level cache of 480 MiB as reported)".
std::string describe(const MemoryPlan& plan);

}  // namespace quern::bench
