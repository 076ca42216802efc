#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model_smoke/model_config.h"

namespace quern::smoke {

/// What ends a text, and what starts it.
struct GenerationConfig {
  std::vector<int64_t> eos_token_ids;  ///< may be empty: then only the length limit ends a text
  std::optional<int64_t> bos_token_id;

  bool is_eos(int64_t id) const;
};

/// From generation_config.json where it says something, else from config.json. Ids are checked
/// against the vocabulary.
GenerationConfig load_generation_config(const ModelDir& dir, const ModelConfig& config);

}  // namespace quern::smoke
