#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model_smoke/comparing_ops.h"
#include "model_smoke/qwen3_5.h"

namespace quern::smoke {

/// What became of all records of one op.
struct OpTotals {
  int64_t calls = 0;
  Comparison comparison;  ///< all elements together
};

struct CompareResult {
  int64_t records = 0;
  std::map<std::string, OpTotals> by_op;  ///< "rms_norm", "delta_rule state", ...
  std::optional<OpRecord> first_divergence;
  std::vector<int32_t> generated;  ///< the greedy tokens of the decode steps

  bool holds() const noexcept { return !first_divergence; }
};

/// A forward pass of `ids` and then of `steps` greedy tokens, one at a time, with every op run by
/// `inner` (usually model.direct_ops()) and compared. `each` sees every record as it comes.
CompareResult compare_ops(Qwen3_5& model, ModelOps& inner, ThreadPool& pool,
                          const std::vector<int32_t>& ids, int64_t steps,
                          const std::function<void(const OpRecord&)>& each);

/// "equal", "within bound (0.001 of 0.004; 3 of 4096 elements are not equal)", "DIFFERS (...)".
std::string verdict_text(const Comparison& comparison);
/// The divergence in a few lines: where it is, the kernel, the worst element.
std::string divergence_text(const OpRecord& record);

}  // namespace quern::smoke
