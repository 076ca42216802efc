#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model_smoke/regex.h"

namespace quern::smoke {

/// An entry of a quantization config's `ignore` or `targets`, as compressed-tensors and the
/// engines that read it take it:
///   re:EXPR   a Python regular expression, matched from the start of the name
///   Linear    the class name: every linear module
///   a.*.b     a glob; `*` is any text, dots too, and nothing else is special. It matches a whole
///             name, or one part of it between dots
///   a.b       exactly this module, or every module below it
/// A module is known by its name in the file, and by that name with "language_model." taken out or
/// put in front: writers use both spellings for vision checkpoints.
class ModulePattern {
 public:
  /// `file` and `key` are for the message about a bad expression.
  ModulePattern(std::string text, const std::string& file, const std::string& key);

  const std::string& text() const noexcept { return text_; }
  bool matches(std::string_view module) const;
  /// A plain name: neither expression, glob nor class.
  bool is_name() const noexcept { return kind_ == Kind::kName; }
  /// The name without "language_model.".
  const std::string& name() const noexcept { return plain_; }

 private:
  enum class Kind : unsigned char { kName, kGlob, kRegex, kClass };
  bool matches_name(std::string_view name) const;

  Kind kind_ = Kind::kName;
  std::string text_;
  std::string plain_;
  std::optional<Regex> regex_;
};

/// A list of them. Names are looked up, not walked through: published lists name every module of a
/// model, and both lists and files can have tens of thousands of entries.
class ModuleList {
 public:
  static constexpr size_t kMaxPatterns = 1000;

  /// ModelOpt's lists: a plain name also matches one part of a module's name between dots.
  void match_parts() noexcept { match_parts_ = true; }
  bool matches_parts() const noexcept { return match_parts_; }

  /// Throws InputError beyond kMaxPatterns entries that are no plain names.
  void add(std::string text, const std::string& file, const std::string& key);
  /// The first entry that matches, of those whose text has `word` in it; null when none does.
  const ModulePattern* find(std::string_view module, std::string_view word = {}) const;
  const std::vector<ModulePattern>& entries() const noexcept { return entries_; }

 private:
  std::vector<ModulePattern> entries_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::vector<size_t> patterns_;
  bool match_parts_ = false;
};

/// The parts of a name between its dots.
std::vector<std::string_view> parts_of(std::string_view name);

/// Whether a part of the name is `part`, as AWQ's modules_to_not_convert has it ("mlp.gate" is one
/// of "mlp.gate_proj" too), with or without "language_model." on either side.
bool has_part(std::string_view module, std::string_view part);

/// The name with the part "language_model." taken out.
std::string without_language_model(std::string_view name);

/// `*` is any run of bytes, everything else is itself. Linear in text times pattern.
bool glob_match(std::string_view pattern, std::string_view text) noexcept;

}  // namespace quern::smoke
