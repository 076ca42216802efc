#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model_smoke/model_dir.h"
#include "quern/span.h"

namespace quern::smoke {

/// Byte-level BPE as in a Hugging Face tokenizer.json. Immutable after loading: use it from any
/// number of threads.
class Tokenizer {
 public:
  static Tokenizer load(const ModelDir& dir);
  static Tokenizer parse(std::string_view json, const std::string& file);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// `text` must be valid UTF-8 (else InputError). Added tokens in the text become their ids.
  /// `with_special` applies the post-processor (a begin-of-text token where the file has one).
  std::vector<int32_t> encode(std::string_view text, bool with_special = false) const;

  /// Bytes of the ids; malformed UTF-8 becomes U+FFFD. An id that is not in the vocabulary throws.
  std::string decode(Span<const int32_t> ids, bool skip_special = false) const;

  /// The bytes one id stands for, as they are (maybe a part of a character).
  std::string_view bytes_of(int32_t id) const;
  bool has_id(int64_t id) const noexcept;
  bool is_special(int32_t id) const noexcept;
  std::optional<int32_t> id_of(std::string_view token) const;
  /// One more than the largest id.
  int64_t id_limit() const noexcept;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Decodes one id at a time and gives out whole characters only: bytes of a character that is not
/// complete yet are held back.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}
  std::string push(int32_t id);
  /// What is still held back, as U+FFFD where it is no character.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string held_;
};

}  // namespace quern::smoke
