#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model_smoke/json_file.h"

namespace quern::smoke {

/// The `model` of tokenizer.json: vocabulary and merges of byte-level BPE.
class Bpe {
 public:
  static constexpr int64_t kMaxTokens = 4'000'000;

  /// Throws InputError for another model type, an empty vocabulary, bad ids, or merges that name
  /// absent tokens.
  explicit Bpe(const JsonNode& model);

  /// Token text as written in the file (byte alphabet) -> id; -1 when there is none.
  int32_t id_of(std::string_view token) const;
  const std::unordered_map<std::string, int32_t>& vocabulary() const noexcept { return vocab_; }

  /// Appends the ids of one piece of text. Time is n log n in its bytes.
  void encode(std::string_view piece, std::vector<int32_t>* ids) const;

 private:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };
  // A linked list over the bytes of a piece.
  struct Symbol {
    int32_t id;  ///< -1 once merged into its left neighbour
    int32_t previous, next;
  };
  void read_vocabulary(const JsonNode& vocab);
  void read_merges(const JsonNode& merges);
  void add_merge(const JsonNode& node, std::string_view left, std::string_view right,
                 uint32_t rank);
  const Merge* find_merge(int32_t left, int32_t right) const;
  std::vector<Symbol> one_symbol_per_byte(std::string_view piece) const;
  void merge_all(std::vector<Symbol>* symbols) const;

  std::string file_;
  std::unordered_map<std::string, int32_t> vocab_;
  std::unordered_map<std::string, int32_t> by_bytes_;  ///< only filled when ignore_merges
  std::unordered_map<uint64_t, Merge> merges_;         ///< left id << 32 | right id
  std::array<int32_t, 256> byte_ids_{};
  bool ignore_merges_ = false;
};

/// The bytes a token stands for; false when a character is outside the byte alphabet (added tokens,
/// which then stand for their own text).
bool decode_byte_alphabet(std::string_view token, std::string* bytes);

}  // namespace quern::smoke
