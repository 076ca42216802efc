#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model_smoke/model_config.h"
#include "model_smoke/model_dir.h"
#include "model_smoke/options.h"
#include "model_smoke/tokenizer.h"

namespace quern::smoke {

/// The model's tokenizer; none where it has none and the prompt is ids.
std::optional<Tokenizer> load_tokenizer(const ModelDir& dir, const PromptOptions& prompt);

/// The prompt as ids of the vocabulary, at least one. Throws InputError also where the prompt and
/// `more_tokens` behind it do not fit the model's positions.
std::vector<int32_t> prompt_ids(const PromptOptions& prompt, const ModelConfig& config,
                                const std::optional<Tokenizer>& tokenizer, int64_t more_tokens);

}  // namespace quern::smoke
