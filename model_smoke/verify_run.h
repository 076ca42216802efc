#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model_smoke/goldens.h"
#include "model_smoke/metrics.h"
#include "model_smoke/qwen3_5.h"

namespace quern::smoke {

/// What came of one golden prompt.
struct PromptResult {
  int64_t tokens = 0;
  Tensor logits;        ///< f32 [T, vocab], one call for the whole prompt
  LogitStats golden;    ///< logits against the golden ones
  LogitStats stepwise;  ///< token by token against `logits`
  std::vector<int32_t> greedy;
  int64_t greedy_equal = 0;            ///< leading tokens that are equal
  std::optional<double> first_margin;  ///< margin where they part, when they do
};

struct VerifyResult {
  std::vector<PromptResult> prompts;
  LogitStats golden, stepwise;  ///< all tokens of all prompts together
};

/// Runs every prompt three ways: at once, greedily on from there, and token by token.
VerifyResult run_goldens(Qwen3_5& model, const Goldens& goldens, const Tolerance& tolerance);

/// Empty when the numbers hold; else what does not, "relative RMS 5.1 % > 4 %". Sums over many
/// tokens (RMS, KL, argmax) are held for all prompts together: a prompt of one token says little.
std::vector<std::string> violations(const LogitStats& stats, const Tolerance& tolerance);
/// The same for what is held per prompt: max abs, greedy tokens, finite logits.
std::vector<std::string> violations(const PromptResult& prompt, const Tolerance& tolerance);

}  // namespace quern::smoke
