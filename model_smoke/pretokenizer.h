#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model_smoke/json_file.h"

namespace quern::smoke {

/// Cuts text into the pieces BPE works on: the `pre_tokenizer` of tokenizer.json (Split and
/// ByteLevel, alone or in a Sequence).
class PreTokenizer {
 public:
  /// `node` may be JSON null (one piece). Throws InputError for an unknown type or a bad regex.
  explicit PreTokenizer(const JsonNode& node);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  /// Pieces in order, raw UTF-8 (the byte-level alphabet is applied to the vocabulary instead, so
  /// that text stays bytes). Together they are the text, except what a Split removed and a space
  /// that add_prefix_space put in front.
  std::vector<std::string> split(std::string_view text) const;

 private:
  struct Stage;
  std::vector<std::unique_ptr<Stage>> stages_;
};

}  // namespace quern::smoke
