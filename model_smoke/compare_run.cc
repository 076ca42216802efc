#include "model_smoke/compare_run.h"

#include <algorithm>

#include <fmt/format.h>

#include "model_smoke/layers/simd_target.h"
#include "model_smoke/metrics.h"

namespace quern::smoke {

CompareResult compare_ops(Qwen3_5& model, ModelOps& inner, ThreadPool& pool,
                          const std::vector<int32_t>& ids, int64_t steps,
                          const std::function<void(const OpRecord&)>& each) {
  CompareResult result;
  ComparingOps ops(inner, pool, layer_kernel_name(LayerImpl::kSimd), [&](const OpRecord& record) {
    ++result.records;
    OpTotals& totals =
        result.by_op[record.op + (record.output == "output" ? "" : " " + record.output)];
    ++totals.calls;
    totals.comparison.merge(record.comparison);
    if (!result.first_divergence && record.comparison.verdict() == Verdict::kDiffers) {
      result.first_divergence = record;
    }
    each(record);
  });
  ModelCache cache = model.make_cache();
  Tensor logits;
  const int64_t tokens = static_cast<int64_t>(ids.size());
  ForwardOptions options;
  options.ops = &ops;
  options.last_only = true;  // as generate does
  // In the model's own blocks, so that a record's position is that of its call.
  for (int64_t t = 0; t < tokens; t += Qwen3_5::kPrefillBlock) {
    const int64_t count = std::min(Qwen3_5::kPrefillBlock, tokens - t);
    ops.set_first_token(t);
    model.forward({ids.data() + t, static_cast<size_t>(count)}, cache, options, logits);
  }
  const int64_t vocab = model.config().vocab_size;
  for (int64_t i = 0; i < steps; ++i) {
    const int32_t id = static_cast<int32_t>(argmax(logits.row<float>(0), vocab));
    result.generated.push_back(id);
    ops.set_first_token(tokens + i);
    model.forward({&id, 1}, cache, options, logits);
  }
  return result;
}

std::string verdict_text(const Comparison& c) {
  const std::string name = to_string(c.verdict());
  if (c.verdict() == Verdict::kEqual) return name;
  if (c.verdict() == Verdict::kWithinBound) {
    return fmt::format("{} ({:.3g} of {:.3g}; {} of {} elements are not equal)", name,
                       c.worst.distance, c.worst.allowed, c.unequal, c.elements);
  }
  return fmt::format("{} ({} of {} elements, worst off by {:.3g}, allowed {:.3g})", name, c.outside,
                     c.elements, c.worst.distance, c.worst.allowed);
}

std::string divergence_text(const OpRecord& r) {
  const Comparison::Element& e = r.comparison.worst;
  return fmt::format(
      "first divergence: {}, module {}, op {} ({})\n  call at token {}, kernel {}\n  worst element "
      "[{}, {}]: got {:.9g}, expected {:.9g} +- {:.3g}; {} of {} elements differ\n",
      r.layer < 0 ? std::string("outside the layers") : fmt::format("layer {}", r.layer), r.module,
      r.op, r.output, r.first_token, r.kernel, e.row, e.col, e.got, e.expected, e.allowed,
      r.comparison.outside, r.comparison.elements);
}

}  // namespace quern::smoke
