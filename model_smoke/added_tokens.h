#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model_smoke/bpe.h"
#include "model_smoke/json_file.h"
#include "model_smoke/normalizer.h"
#include "model_smoke/regex.h"

namespace quern::smoke {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;   ///< looked for after normalization, in its normalized form
  bool lstrip = false;       ///< swallows white space to its left
  bool rstrip = false;       ///< and to its right
  bool single_word = false;  ///< only where no word character touches it
};

/// The `added_tokens` of tokenizer.json, found in text before BPE sees it: leftmost, then longest.
class AddedTokens {
 public:
  /// Throws InputError for bad or duplicate ids, empty contents, or an id that contradicts `bpe`.
  AddedTokens(const JsonNode& list, const Bpe& bpe, const Normalizer& normalizer);

  const std::vector<AddedToken>& tokens() const noexcept { return tokens_; }
  bool is_special(int32_t id) const noexcept { return special_.contains(id); }

  /// Text between tokens (id -1), or one token. Texts are never empty.
  struct Part {
    int32_t id;
    std::string_view text;
  };
  /// Cuts `text` at the tokens with `normalized` as given; the others are not looked for.
  std::vector<Part> cut(std::string_view text, bool normalized) const;

 private:
  // A trie over bytes: the longest token at a position is found in one walk.
  struct Node {
    std::map<unsigned char, size_t> next;
    int32_t token = -1;  ///< index into tokens_
  };
  using Trie = std::vector<Node>;
  static void insert(Trie* trie, std::string_view text, int32_t token);
  AddedToken read_token(const JsonNode& node, const Bpe& bpe) const;

  std::vector<AddedToken> tokens_;
  std::map<int32_t, size_t> special_;
  Trie raw_{1};
  Trie normalized_{1};
  std::unique_ptr<Regex> word_char_;
};

}  // namespace quern::smoke
