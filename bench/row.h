#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bench/roofline.h"
#include "bench/timing.h"
#include "quern/problem.h"

namespace quern::bench {

enum class Verified {
  kNotAsked,
  kEqual,        ///< bit for bit
  kWithinBound,  ///< of the numeric contract, derived for each element
  kFailed,       ///< the row then carries no numbers
};

/// "not asked", "equal", "within bound", "failed": in every table and file.
const char* to_string(Verified verified);
/// The inverse; nothing for other texts.
std::optional<Verified> verified_from(std::string_view text);

/// The other library on the same problem.
struct PeerRow {
  Stats us;          ///< over the block medians; count 0: not measured, `note` says why
  double ratio = 0;  ///< median over the alternations of its block over ours: > 1, quern is faster
  std::string kernel;   ///< what it says it ran
  std::string isa_cap;  ///< the cap of its instruction set, in its own words; empty: none
  std::string note;
};

/// One line of the table.
struct Row {
  Problem problem;
  std::string kernel;
  Stats us;  ///< of a call; median of the block medians, MAD of the calls, number of calls
  Work work;
  int64_t copies = 1;  ///< of the operand that rotates
  int alternations = 0;
  double block_mad = 0;  ///< of the block medians: how well the row repeats within its run
  PeerRow peer;
  Verified verified = Verified::kNotAsked;
  std::string checked;  ///< what --verify compared
  double foreign = 0;   ///< CPUs that others used meanwhile
  std::string error;    ///< not empty: no numbers, and why

  bool has_numbers() const { return error.empty() && us.median > 0; }
  bool disturbed() const { return foreign > kForeignLimit; }
  double gops() const { return us.median > 0 ? work.ops / us.median * 1e-3 : 0; }
  double gbps() const { return us.median > 0 ? work.bytes / us.median * 1e-3 : 0; }
};

}  // namespace quern::bench
