#pragma once

#include "quern/tuning.h"

namespace quern::test {

/// Answers every question with one blocking.
class OneBlocking final : public TuningSource {
 public:
  explicit OneBlocking(const GemmBlocking& blocking) : blocking_(blocking) {}
  bool lookup(const Problem&, GemmBlocking* out) const noexcept override {
    *out = blocking_;
    return true;
  }
  const char* name() const noexcept override { return "one blocking"; }

 private:
  GemmBlocking blocking_;
};

/// Cuts problems of some hundreds in every dimension. Level amx has no such blocks of rows and
/// stays with its own, in scratch all the same.
inline GemmBlocking small_blocks() {
  GemmBlocking b;
  b.mr = 8;
  b.nr = 2;
  b.mc = 16;
  b.nc = 32;
  b.kc = 64;
  return b;
}

}  // namespace quern::test
