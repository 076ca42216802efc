#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/peer_process.h"
#include "bench/report.h"
#include "bench/roofs.h"

namespace quern::bench {

/// One run: measures rows as Google Benchmark asks for them, and the roofs around them.
class Session {
 public:
  /// Starts the peer first, before any thread exists.
  explicit Session(const Options& options);

  ContextSet& contexts() { return *contexts_; }
  /// Measures the problem and prints a line of progress. Measures the roofs of its thread count
  /// when that is seen for the first time.
  const Row& measure(const Problem& problem);
  /// Of the roofs before the run; what a row is held to until the run is over.
  Roofs roofs_before(const Problem& problem) const;
  /// Measures the roofs again.
  void finish();

  const Report& report() const { return report_; }
  /// False when a check failed or a problem was refused.
  bool passed() const;

 private:
  std::string start_peer();

  const Options options_;
  std::unique_ptr<PeerProcess> peer_;
  std::string no_peer_;
  std::unique_ptr<ContextSet> contexts_;
  std::unique_ptr<RoofMeter> meter_;
  std::unique_ptr<Measurer> measurer_;
  Report report_;
};

}  // namespace quern::bench
