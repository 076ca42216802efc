#pragma once

#include <cstdint>
#include <string>

#include "quern/int4_weights.h"

namespace quern::smoke {

/// Says on stderr what is being packed, where packing takes so long that somebody may wonder: one
/// line written over itself on a terminal, a line every few seconds elsewhere.
class PackingReport {
 public:
  PackingReport();
  PackingReport(const PackingReport&) = delete;
  PackingReport& operator=(const PackingReport&) = delete;
  ~PackingReport() { finish(); }
  /// For the pack() of these modules; the report outlives the call.
  PackProgress of(const std::string& modules);
  /// Ends the line, if there is one.
  void finish();

 private:
  static void note(void* self, int64_t done, int64_t total);

  bool terminal_;
  double next_;  ///< seconds: nothing is written before
  bool written_ = false;
  std::string modules_;
};

}  // namespace quern::smoke
