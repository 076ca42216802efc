#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace quern::smoke {

/// Bad input or usage: something the user can mend. `main` prints it and exits with 2. Every part
/// is kept, so that tests (and a JSON report) need not take the sentence apart.
struct InputError : std::runtime_error {
  InputError(std::string in_file, std::string in_key, std::string in_expected, std::string in_got,
             std::string in_hint = {})
      : std::runtime_error(sentence(in_file, in_key, in_expected, in_got, in_hint)),
        file(std::move(in_file)),
        key(std::move(in_key)),
        expected(std::move(in_expected)),
        got(std::move(in_got)),
        hint(std::move(in_hint)) {}

  std::string file;      ///< file (or switch) at fault
  std::string key;       ///< JSON key path, tensor name, or byte position
  std::string expected;  ///< the rule
  std::string got;       ///< what is there instead
  std::string hint;      ///< next step; may be empty

 private:
  static std::string sentence(const std::string& file, const std::string& key,
                              const std::string& expected, const std::string& got,
                              const std::string& hint) {
    std::string s = file + ": ";
    if (!key.empty()) s += key + ": ";
    s += "expected " + expected + ", got " + got;
    if (!hint.empty()) s += " (" + hint + ")";
    return s;
  }
};

}  // namespace quern::smoke
