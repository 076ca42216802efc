#pragma once

#include <functional>

#include "bench/context_set.h"
#include "bench/op_case.h"
#include "bench/peer.h"
#include "bench/row.h"

namespace quern::bench {

struct MeasureOptions {
  bool verify = false;
  int alternations = 5;  ///< blocks of ours, each followed by one of the peer's
  BlockBudget budget;
  int tries = 2;      ///< a row that others disturbed is measured again
  MemoryPlan memory;  ///< how large cold is
  /// GB/s at which `threads` threads read memory right now, for rows that do; may be empty.
  std::function<double(int threads)> memory_now;
};

/// Measures rows.
class Measurer {
 public:
  /// `peer` may be null: then `no_peer` says why. Nothing is owned.
  Measurer(const MeasureOptions& options, ContextSet* contexts, Peer* peer, std::string no_peer,
           CaseFactory factory = make_case);

  /// Never throws; what went wrong is in Row::error.
  Row measure(const Problem& problem);

 private:
  void measure_case(OpCase* op, Row* row);
  bool verify(OpCase* op, Row* row) const;
  bool alternate(OpCase* op, bool with_peer, Row* row);

  const MeasureOptions options_;
  ContextSet* const contexts_;
  Peer* const peer_;
  const std::string no_peer_;
  const CaseFactory factory_;
};

}  // namespace quern::bench
