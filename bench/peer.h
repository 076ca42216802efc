#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "bench/timing.h"
#include "quern/problem.h"

namespace quern::bench {

/// What a peer may use.
enum class PeerIsa {
  kRow,   ///< no more than the level of the row: kernel against kernel
  kBest,  ///< everything that it finds
};

/// Another library, measured on the same problems. It is somewhere else while we are measured and
/// runs only inside a call of this interface.
class Peer {
 public:
  virtual ~Peer() = default;

  /// "oneDNN 2.6.3"; empty while it is not known.
  virtual std::string name() const = 0;
  /// Prepares the problem. False: it has none of that kind, or it is gone; note() says which.
  virtual bool setup(const Problem& problem) = 0;
  /// Median, MAD and number of the calls of one block; nothing when it failed, see note().
  virtual std::optional<Stats> block(const BlockBudget& budget) = 0;

  /// After setup: what it runs.
  virtual std::string kernel() const = 0;
  /// After setup: the cap of its instruction set, in its own words; empty: none.
  virtual std::string isa_cap() const = 0;
  /// Why the last setup or block gave nothing.
  virtual std::string note() const = 0;
  /// For the CPU time account; 0 when there is no process.
  virtual pid_t pid() const = 0;
};

}  // namespace quern::bench
