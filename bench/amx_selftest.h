#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "quern/context.h"

// The cases of quern-amx-selftest. Every case prints one line with a checksum of its result; two
// runs on machines whose AMX does the same print the same lines, so that reports can be compared by
// diff.

namespace quern::bench {

/// FNV-1a over 64 bits.
class Checksum {
 public:
  void add(const void* bytes, size_t count);
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 1469598103934665603ull;
};

enum class Verdict {
  kOk,
  kWrong,    ///< not what it must be
  kDiffers,  ///< another rounding than the manual's: allowed, but worth knowing
  kNotRun,   ///< the machine cannot
};

struct SelftestResult {
  std::string name;
  uint64_t checksum = 0;
  Verdict verdict = Verdict::kNotRun;
};
using SelftestSink = std::function<void(const SelftestResult&)>;

/// Each dot product and the moves on seeded tiles of many sizes, against the emulator's arithmetic.
void run_instruction_cases(const SelftestSink& sink);

/// int8_gemm and bf16_gemm at level amx over tails of M, N and K: integers bit for bit against the
/// avx512 level, bf16 against exact sums of small integers and against its own order of sums.
void run_kernel_cases(const Context& amx, const Context& avx512, const SelftestSink& sink);

/// Medians in plain text: int8 and bf16 at both levels, one thread.
void print_times(const Context& amx, const Context& avx512);

}  // namespace quern::bench
