#pragma once

#include <cstdint>
#include <string>

#include "bench/roofline.h"
#include "bench/timing.h"
#include "quern/problem.h"

namespace quern::bench {

enum class Verified {
  kNotAsked,
  kEqual,        ///< bit for bit
  kWithinBound,  ///< of the numeric contract, derived for each element
  kFailed,  ///< the row then carries no numbers
};

/// The other library on the same problem.
struct PeerRow {
  Stats us;          ///< over the block medians; count 0: not measured, `note` says why
  double ratio = 0;  ///< median over the alternations of its block over ours: > 1, quern is faster
  std::string kernel;  ///< what it says it ran
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
  PeerRow peer;
  Verified verified = Verified::kNotAsked;
  std::string checked;  ///< what --verify compared
  double foreign = 0;   ///< CPUs that others used meanwhile
  std::string error;    ///< not empty: no numbers, and why

  bool disturbed() const { return foreign > kForeignLimit; }
  double gops() const { return us.median > 0 ? work.ops / us.median * 1e-3 : 0; }
  double gbps() const { return us.median > 0 ? work.bytes / us.median * 1e-3 : 0; }
};

}  // namespace quern::bench
