#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace quern::smoke {

/// A value of a result file; members keep the order they came in. The JSON library stays behind it:
/// its templates cost half a minute of compiling in every file that fills a nlohmann::ordered_json.
/// Doubles must be finite: JSON has no word for the others.
class JsonOut {
 public:
  using Members = std::initializer_list<std::pair<std::string_view, JsonOut>>;

  JsonOut();  ///< null
  JsonOut(bool value);
  JsonOut(int value);
  JsonOut(int64_t value);
  JsonOut(uint64_t value);
  JsonOut(double value);
  JsonOut(const char* value);
  JsonOut(const std::string& value);
  JsonOut(const std::vector<int32_t>& values);
  JsonOut(const std::vector<int64_t>& values);
  JsonOut(const std::vector<std::string>& values);
  static JsonOut object(Members members = {});
  static JsonOut array();

  JsonOut(const JsonOut& other);
  JsonOut(JsonOut&& other) noexcept;
  JsonOut& operator=(JsonOut other) noexcept;
  ~JsonOut();

  /// Of an object: adds the member, or replaces it in its place.
  void set(std::string_view key, const JsonOut& value);
  /// Of an array.
  void push_back(const JsonOut& value);

  /// The text of a file: indented by one, with a newline at the end.
  std::string text() const;

 private:
  std::unique_ptr<nlohmann::ordered_json> value_;
};

}  // namespace quern::smoke
