#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model_smoke/json_file.h"

namespace quern::smoke {

/// Cuts text into the pieces BPE works on: the `pre_tokenizer` of tokenizer.json, made of Split,
/// Digits and ByteLevel, alone or in a Sequence; ByteLevel is the last.
class PreTokenizer {
 public:
  /// Throws InputError for an unknown type, a bad regex, or when there is no ByteLevel.
  explicit PreTokenizer(const JsonNode& node);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  /// Pieces in order, raw UTF-8: the byte alphabet of ByteLevel is taken off the vocabulary
  /// instead, so that text stays bytes. Together they are the text, except what a Split removed
  /// and the spaces that add_prefix_space puts in front. `text` must be valid UTF-8.
  std::vector<std::string> split(std::string_view text) const;

  struct Stage;

 private:
  void read(const JsonNode& node);

  std::vector<std::unique_ptr<Stage>> stages_;
  std::unique_ptr<Stage>
      byte_level_;  ///< the cut of ByteLevel itself; null when use_regex is false
  bool has_byte_level_ = false;
  bool add_prefix_space_ = false;
};

}  // namespace quern::smoke
