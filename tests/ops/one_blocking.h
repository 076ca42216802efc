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

}  // namespace quern::test
