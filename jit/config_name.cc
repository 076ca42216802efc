#include "jit/config_name.h"

namespace quern::jit {

std::vector<std::string_view> split_name(std::string_view name) {
  std::vector<std::string_view> words;
  while (true) {
    const size_t dot = name.find('.');
    words.push_back(name.substr(0, dot));
    if (dot == std::string_view::npos) return words;
    name.remove_prefix(dot + 1);
  }
}

std::optional<int> parse_field(std::string_view word, std::string_view prefix) {
  if (word.substr(0, prefix.size()) != prefix) return std::nullopt;
  word.remove_prefix(prefix.size());
  if (word.empty() || word.size() > 9 || (word[0] == '0' && word.size() > 1)) return std::nullopt;
  int value = 0;
  for (char c : word) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

std::optional<std::vector<DType>> parse_dtypes(std::string_view word) {
  constexpr DType kAll[] = {DType::kF32,  DType::kBF16, DType::kF16, DType::kS8,
                            DType::kU8,   DType::kS32,  DType::kU4,  DType::kE4M3,
                            DType::kE5M2, DType::kE2M1, DType::kE8M0};
  std::vector<DType> types;
  while (!word.empty()) {
    bool found = false;
    for (DType t : kAll) {
      const std::string_view name = to_string(t);
      if (word.substr(0, name.size()) != name) continue;
      types.push_back(t);
      word.remove_prefix(name.size());
      found = true;
      break;
    }
    if (!found) return std::nullopt;
  }
  return types;
}

}  // namespace quern::jit
