#include "model_smoke/prompt.h"

#include <fmt/format.h>

#include "model_smoke/input_error.h"

namespace quern::smoke {

std::optional<Tokenizer> load_tokenizer(const ModelDir& dir, const PromptOptions& prompt) {
  if (!prompt.text && !dir.exists("tokenizer.json")) return std::nullopt;
  return Tokenizer::load(dir);
}

std::vector<int32_t> prompt_ids(const PromptOptions& prompt, const ModelConfig& config,
                                const std::optional<Tokenizer>& tokenizer, int64_t more_tokens) {
  std::vector<int32_t> ids;
  if (prompt.ids) {
    ids = *prompt.ids;
  } else {
    ids = tokenizer->encode(*prompt.text, true);
  }
  for (const int32_t id : ids) {
    if (id < config.vocab_size) continue;
    throw InputError(
        prompt.ids ? "--ids" : "tokenizer.json", "",
        fmt::format("ids below vocab_size {}", config.vocab_size),
        prompt.ids ? std::to_string(id) : fmt::format("{} for a piece of the prompt", id));
  }
  if (ids.empty()) throw InputError("-p", "", "at least one token", "none");
  const int64_t total = static_cast<int64_t>(ids.size()) + more_tokens;
  if (total > config.max_position_embeddings) {
    throw InputError("-n", "",
                     fmt::format("prompt and new tokens within max_position_embeddings {}",
                                 config.max_position_embeddings),
                     fmt::format("{} + {}", ids.size(), more_tokens));
  }
  return ids;
}

}  // namespace quern::smoke
