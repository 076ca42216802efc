#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace quern::smoke {

/// Text out of an untrusted file, fit for a terminal: control bytes as \xNN, long text cut.
std::string printable(std::string_view text, size_t max_bytes = 200);

/// Bad input or usage: something the user can mend. `main` prints it and exits with 2. Every part
/// is kept, so that tests and reports need not take the sentence apart.
struct InputError : std::runtime_error {
  InputError(std::string_view in_file, std::string_view in_key, std::string_view in_expected,
             std::string_view in_got, std::string_view in_hint = {});

  std::string file;      ///< file (or switch) at fault
  std::string key;       ///< JSON key path, tensor name, or byte position
  std::string expected;  ///< the rule
  std::string got;       ///< what is there instead
  std::string hint;      ///< next step; may be empty
};

}  // namespace quern::smoke
