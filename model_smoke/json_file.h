#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace quern::smoke {

using Json = nlohmann::json;

/// Limits every JSON file is read under (reliability.md L12).
inline constexpr int kMaxJsonDepth = 64;
inline constexpr uint64_t kMaxJsonKeys = 4'000'000;

/// The JSON library takes a NUL byte for the end of the text: whatever follows would never be
/// looked at.
void refuse_nul(std::string_view text, const std::string& file);

/// Strict JSON: valid UTF-8, no duplicate key, no text after the value, depth and key count
/// bounded. Throws InputError naming `file` and the place.
Json parse_json(std::string_view text, const std::string& file);

/// A JSON value together with where it came from, so that every message names file and key.
class JsonNode {
 public:
  JsonNode(const Json& value, std::string file, std::string path)
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  const Json& value() const noexcept { return *value_; }
  const std::string& file() const noexcept { return file_; }
  const std::string& path() const noexcept { return path_; }

  /// Present and not null.
  bool has(std::string_view key) const;
  /// A member that must be there (null counts as there); `expected` is the rule a message names.
  JsonNode at(std::string_view key, std::string_view expected = "a value") const;
  /// A member that is there and not null.
  std::optional<JsonNode> find(std::string_view key) const;
  JsonNode element(size_t index) const;
  size_t size() const;

  void require_object() const;
  void require_array() const;
  /// 1.0 and 1e3 are no integers.
  int64_t as_int(int64_t min, int64_t max) const;
  double as_number() const;
  bool as_bool() const;
  const std::string& as_string() const;

  int64_t int_at(std::string_view key, int64_t min, int64_t max) const;
  int64_t int_or(std::string_view key, int64_t fallback, int64_t min, int64_t max) const;
  double number_or(std::string_view key, double fallback) const;
  /// For these two null counts as absent.
  bool bool_or(std::string_view key, bool fallback) const;
  std::string string_or(std::string_view key, std::string_view fallback) const;

  [[noreturn]] void fail(std::string_view expected, std::string_view hint = {}) const;

 private:
  std::string child_path(std::string_view key) const;

  const Json* value_;
  std::string file_;
  std::string path_;
};

/// Type and value in a few words: `number -1`, `string "8"`, `null`, `an array of 3`.
std::string describe(const Json& value);

}  // namespace quern::smoke
