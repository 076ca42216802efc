#include "model_smoke/module_pattern.h"

#include <utility>

#include "model_smoke/input_error.h"

namespace quern::smoke {
namespace {

constexpr std::string_view kNested = "language_model.";

bool is_or_is_below(std::string_view module, std::string_view name) {
  return module == name ||
         (module.size() > name.size() && module.starts_with(name) && module[name.size()] == '.');
}

}  // namespace

std::string without_language_model(std::string_view name) {
  std::string s(name);
  const size_t at = s.find(kNested);
  const bool whole_part = at == 0 || (at != std::string::npos && s[at - 1] == '.');
  if (whole_part) s.erase(at, kNested.size());
  return s;
}

bool has_part(std::string_view module, std::string_view part) {
  return module.find(part) != std::string_view::npos ||
         without_language_model(module).find(without_language_model(part)) != std::string::npos;
}

bool glob_match(std::string_view pattern, std::string_view text) noexcept {
  // The usual two-pointer walk: on a mismatch the last star takes one byte more.
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;
  size_t resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

ModulePattern::ModulePattern(std::string text, const std::string& file, const std::string& key)
    : text_(std::move(text)), plain_(without_language_model(text_)) {
  if (text_.empty()) throw InputError(file, key, "a name or a pattern", "an empty string");
  if (text_.starts_with("re:")) {
    kind_ = Kind::kRegex;
    regex_.emplace(std::string_view(text_).substr(3), Regex::Syntax::kPython, file, key);
  } else if (text_ == "Linear") {
    kind_ = Kind::kClass;
  } else if (text_.find('*') != std::string::npos) {
    kind_ = Kind::kGlob;
  }
}

bool ModulePattern::matches(std::string_view module) const {
  if (kind_ == Kind::kClass) return true;
  const std::string plain = without_language_model(module);
  if (kind_ == Kind::kName) return is_or_is_below(plain, plain_);
  return matches_name(module) || matches_name(plain) || matches_name(std::string(kNested) + plain);
}

bool ModulePattern::matches_name(std::string_view name) const {
  if (regex_) return regex_->matches_start(name);
  if (glob_match(text_, name)) return true;
  while (true) {
    const size_t dot = name.find('.');
    if (glob_match(text_, name.substr(0, dot))) return true;
    if (dot == std::string_view::npos) return false;
    name.remove_prefix(dot + 1);
  }
}

void ModuleList::add(std::string text, const std::string& file, const std::string& key) {
  entries_.emplace_back(std::move(text), file, key);
  const size_t index = entries_.size() - 1;
  if (entries_.back().is_name()) {
    by_name_.emplace(entries_.back().name(), index);
    return;
  }
  if (patterns_.size() == kMaxPatterns)
    throw InputError(file, key, "at most 1000 patterns", "more");
  patterns_.push_back(index);
}

const ModulePattern* ModuleList::find(std::string_view module, std::string_view word) const {
  const auto named = [&](std::string_view name) -> const ModulePattern* {
    const auto it = by_name_.find(name);
    const bool found =
        it != by_name_.end() && entries_[it->second].text().find(word) != std::string::npos;
    return found ? &entries_[it->second] : nullptr;
  };
  // The module itself, then every module above it.
  std::string name = without_language_model(module);
  while (true) {
    if (const ModulePattern* p = named(name)) return p;
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos) break;
    name.resize(dot);
  }
  for (const std::string_view part :
       match_parts_ ? parts_of(module) : std::vector<std::string_view>()) {
    if (const ModulePattern* p = named(part)) return p;
  }
  for (const size_t i : patterns_) {
    const ModulePattern& p = entries_[i];
    if (p.text().find(word) != std::string::npos && p.matches(module)) return &p;
  }
  return nullptr;
}

std::vector<std::string_view> parts_of(std::string_view name) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t dot = name.find('.');
    parts.push_back(name.substr(0, dot));
    if (dot == std::string_view::npos) return parts;
    name.remove_prefix(dot + 1);
  }
}

}  // namespace quern::smoke
