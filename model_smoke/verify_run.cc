#include "model_smoke/verify_run.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace quern::smoke {
namespace {

/// Margins are those of the continuation without an FP8 cache: where the two part, a decision was
/// close, and nothing is known behind it.
double margin_at(const GoldenPrompt& golden, const std::vector<int32_t>& expected, size_t step) {
  const bool same = std::equal(
      expected.begin(), expected.begin() + static_cast<ptrdiff_t>(step) + 1, golden.greedy.begin());
  return same ? static_cast<double>(golden.margin[step]) : 0.0;
}

void run_greedy(Qwen3_5& model, const GoldenPrompt& golden, const std::vector<int32_t>& expected,
                ModelCache& cache, PromptResult& result) {
  const int64_t vocab = model.config().vocab_size;
  const size_t steps = expected.size();
  Tensor logits;
  const float* last = result.logits.row<float>(result.tokens - 1);
  for (size_t i = 0; i < steps; ++i) {
    const int32_t id = static_cast<int32_t>(argmax(last, vocab));
    result.greedy.push_back(id);
    if (i + 1 == steps) break;
    model.forward({&id, 1}, cache, {.last_only = true}, logits);
    last = logits.row<float>(0);
  }
  size_t equal = 0;
  while (equal < steps && result.greedy[equal] == expected[equal]) ++equal;
  result.greedy_equal = static_cast<int64_t>(equal);
  if (equal < steps) result.first_margin = margin_at(golden, expected, equal);
}

PromptResult run_prompt(Qwen3_5& model, const GoldenPrompt& golden, const Tolerance& tolerance) {
  const int64_t vocab = model.config().vocab_size;
  PromptResult result;
  result.tokens = static_cast<int64_t>(golden.ids.size());
  ModelCache cache = model.make_cache();
  model.forward({golden.ids.data(), golden.ids.size()}, cache, {}, result.logits);
  const std::vector<float>& expected = golden.expected(tolerance);
  result.golden.add(expected.data(), result.logits.row<float>(0), result.tokens, vocab);
  run_greedy(model, golden, golden.expected_greedy(tolerance), cache, result);

  cache.reset();
  Tensor row;
  for (int64_t t = 0; t < result.tokens; ++t) {
    model.forward({golden.ids.data() + t, 1}, cache, {}, row);
    result.stepwise.add(result.logits.row<float>(t), row.row<float>(0), 1, vocab);
  }
  return result;
}

}  // namespace

VerifyResult run_goldens(Qwen3_5& model, const Goldens& goldens, const Tolerance& tolerance) {
  VerifyResult result;
  for (const GoldenPrompt& prompt : goldens.prompts()) {
    result.prompts.push_back(run_prompt(model, prompt, tolerance));
    result.golden.add(result.prompts.back().golden);
    result.stepwise.add(result.prompts.back().stepwise);
  }
  return result;
}

std::vector<std::string> violations(const LogitStats& stats, const Tolerance& t) {
  std::vector<std::string> out;
  // Written so that NaN fails.
  if (!std::isfinite(stats.max_abs())) out.push_back("logits that are not finite");
  if (t.max_abs && !(stats.max_abs() <= *t.max_abs)) {
    out.push_back(fmt::format("max abs {:.3g} > {:g}", stats.max_abs(), *t.max_abs));
  }
  if (t.rel_rms && !(stats.relative_rms() <= *t.rel_rms)) {
    out.push_back(fmt::format("relative RMS {:.3f} % > {:.3f} %", stats.relative_rms() * 100,
                              *t.rel_rms * 100));
  }
  if (t.kl && !(stats.kl() <= *t.kl)) {
    out.push_back(fmt::format("KL {:.3g} > {:g}", stats.kl(), *t.kl));
  }
  if (t.argmax && !(stats.argmax_agreement() >= *t.argmax)) {
    out.push_back(
        fmt::format("argmax agreement {:.4f} < {:g}", stats.argmax_agreement(), *t.argmax));
  }
  return out;
}

std::vector<std::string> violations(const PromptResult& prompt, const Tolerance& t) {
  std::vector<std::string> out;
  if (!std::isfinite(prompt.golden.max_abs())) out.push_back("logits that are not finite");
  if (t.max_abs && !(prompt.golden.max_abs() <= *t.max_abs)) {
    out.push_back(fmt::format("max abs {:.3g} > {:g}", prompt.golden.max_abs(), *t.max_abs));
  }
  // A decision closer than the tolerance may go either way, and then everything behind it.
  if (t.greedy_margin && prompt.first_margin && *prompt.first_margin > *t.greedy_margin) {
    out.push_back(fmt::format("greedy token {} differs at margin {:.3f}", prompt.greedy_equal,
                              *prompt.first_margin));
  }
  return out;
}

}  // namespace quern::smoke
