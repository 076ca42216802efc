#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model_smoke/json_file.h"

namespace quern::smoke {

/// The `normalizer` of tokenizer.json: null, NFC, NFD, NFKC, NFKD, or a Sequence of them.
class Normalizer {
 public:
  /// Throws InputError for any other type.
  explicit Normalizer(const JsonNode& node);

  /// `text` must be valid UTF-8.
  std::string apply(std::string_view text) const;

 private:
  enum class Form : unsigned char { kNfc, kNfd, kNfkc, kNfkd };
  void read(const JsonNode& node);
  static std::string apply_form(Form form, std::string_view text);

  std::vector<Form> forms_;
};

}  // namespace quern::smoke
