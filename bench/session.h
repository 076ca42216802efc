#pragma once

#include <memory>
#include <optional>
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
  /// What is going to be measured: the thread counts whose roofs the first row is preceded by.
  void announce(const std::vector<Problem>& problems);
  /// Measures the problem and prints a line of progress.
  const Row& measure(const Problem& problem);
  /// Of the roofs before the run; what a row is held to until the run is over.
  Roofs roofs_before(const Problem& problem) const;
  /// Measures the roofs again, if there was a row.
  void finish();

  const Report& report() const { return report_; }
  /// False when a check failed, a problem was refused, or roofs and limits disagree.
  bool passed() const;

 private:
  std::string start_peer();
  void measure_roofs(bool after);

  Options options_;
  std::unique_ptr<PeerProcess> peer_;
  std::string no_peer_;
  std::unique_ptr<ContextSet> contexts_;
  std::unique_ptr<RoofMeter> meter_;
  std::unique_ptr<Measurer> measurer_;
  std::optional<LimitsSource> limits_;
  Report report_;
};

}  // namespace quern::bench
