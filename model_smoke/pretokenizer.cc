#include "model_smoke/pretokenizer.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"
#include "model_smoke/regex.h"

namespace quern::smoke {
namespace {

constexpr size_t kMaxStages = 64;
// What ByteLevel cuts by when use_regex is true (the pattern of GPT-2).
constexpr char kGpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

struct Range {
  size_t begin, end;
  bool is_match;
};

std::string quote_literal(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    const bool plain =
        u >= 0x80 || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (!plain) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

// One cut: every piece becomes the parts that matched and the parts between, regrouped as the
// behavior says.
struct PreTokenizer::Stage {
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

  Regex regex;
  Behavior behavior;
  bool invert;

  // Matches and gaps of `text`, together all of it, without empty ranges.
  std::vector<Range> matches_and_gaps(Regex::Scanner* scanner, std::string_view text) const {
    std::vector<Range> parts;
    size_t at = 0;
    size_t begin = 0;
    size_t end = 0;
    scanner->start(text);
    while (scanner->next(&begin, &end)) {
      if (begin > at) parts.push_back({at, begin, invert});
      if (end > begin) parts.push_back({begin, end, !invert});
      at = end;
    }
    if (at < text.size()) parts.push_back({at, text.size(), invert});
    return parts;
  }

  std::vector<Range> regroup(std::vector<Range> parts) const {
    std::vector<Range> out;
    bool previous = false;
    switch (behavior) {
      case Behavior::kIsolated:
        return parts;
      case Behavior::kRemoved:
        for (const Range& r : parts) {
          if (!r.is_match) out.push_back(r);
        }
        return out;
      case Behavior::kContiguous:
      case Behavior::kMergedWithPrevious:
        for (const Range& r : parts) {
          const bool join =
              behavior == Behavior::kContiguous ? r.is_match == previous : r.is_match && !previous;
          if (join && !out.empty()) {
            out.back().end = r.end;
          } else {
            out.push_back(r);
          }
          previous = r.is_match;
        }
        return out;
      case Behavior::kMergedWithNext:
        for (auto r = parts.rbegin(); r != parts.rend(); ++r) {
          if (r->is_match && !previous && !out.empty()) {
            out.back().begin = r->begin;
          } else {
            out.push_back(*r);
          }
          previous = r->is_match;
        }
        std::reverse(out.begin(), out.end());
        return out;
    }
    return out;
  }

  std::vector<std::string_view> apply(const std::vector<std::string_view>& pieces) const {
    Regex::Scanner scanner(regex);
    std::vector<std::string_view> out;
    for (const std::string_view piece : pieces) {
      for (const Range& r : regroup(matches_and_gaps(&scanner, piece))) {
        out.push_back(piece.substr(r.begin, r.end - r.begin));
      }
    }
    return out;
  }
};

namespace {

using Stage = PreTokenizer::Stage;

Stage::Behavior read_behavior(const JsonNode& node) {
  const std::string& name = node.as_string();
  if (name == "Removed") return Stage::Behavior::kRemoved;
  if (name == "Isolated") return Stage::Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Stage::Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Stage::Behavior::kMergedWithNext;
  if (name == "Contiguous") return Stage::Behavior::kContiguous;
  node.fail("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

Stage read_split(const JsonNode& node) {
  const JsonNode pattern = node.at("pattern", "an object with Regex or String");
  pattern.require_object();
  const auto expression = pattern.find("Regex");
  const auto literal = pattern.find("String");
  if (expression.has_value() == literal.has_value()) pattern.fail("one of Regex and String");
  const JsonNode& source = expression ? *expression : *literal;
  if (source.as_string().empty()) source.fail("a pattern that is not empty");
  const std::string text = expression ? source.as_string() : quote_literal(source.as_string());
  return {Regex(text, Regex::Syntax::kOniguruma, source.file(), source.path()),
          read_behavior(node.at("behavior", "the name of a behavior")),
          node.bool_or("invert", false)};
}

}  // namespace

PreTokenizer::PreTokenizer(const JsonNode& node) {
  read(node);
  if (!has_byte_level_) {
    node.fail("a pre_tokenizer with ByteLevel", "only byte-level BPE is supported");
  }
}

void PreTokenizer::read(const JsonNode& node) {
  if (node.value().is_null()) return;
  const JsonNode type = node.at("type", "the name of a pre-tokenizer");
  const std::string& name = type.as_string();
  if (name == "Sequence") {
    const JsonNode list = node.at("pretokenizers", "an array");
    list.require_array();
    for (size_t i = 0; i < list.size(); ++i) read(list.element(i));
    return;
  }
  // After it the text is in the byte alphabet, where patterns mean something else.
  if (has_byte_level_) type.fail("nothing after ByteLevel");
  if (stages_.size() == kMaxStages) type.fail("at most 64 pre-tokenizers");
  if (name == "Split") {
    stages_.push_back(std::make_unique<Stage>(read_split(node)));
  } else if (name == "Digits") {
    const auto behavior = node.bool_or("individual_digits", false) ? Stage::Behavior::kIsolated
                                                                   : Stage::Behavior::kContiguous;
    stages_.push_back(std::make_unique<Stage>(Stage{
        Regex("\\p{N}", Regex::Syntax::kOniguruma, node.file(), node.path()), behavior, false}));
  } else if (name == "ByteLevel") {
    has_byte_level_ = true;
    add_prefix_space_ = node.bool_or("add_prefix_space", true);
    if (!node.bool_or("use_regex", true)) return;
    byte_level_ = std::make_unique<Stage>(
        Stage{Regex(kGpt2, Regex::Syntax::kOniguruma, node.file(), node.path()),
              Stage::Behavior::kIsolated, false});
  } else {
    type.fail("Split, Digits, ByteLevel, or a Sequence of them");
  }
}

PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

std::vector<std::string> PreTokenizer::split(std::string_view text) const {
  std::vector<std::string_view> pieces;
  if (!text.empty()) pieces.push_back(text);
  for (const auto& stage : stages_) pieces = stage->apply(pieces);
  // The space is not part of the text, so from here on the pieces own their bytes.
  std::vector<std::string> spaced;
  for (const std::string_view piece : pieces) {
    const bool prefix = add_prefix_space_ && !piece.starts_with(' ');
    spaced.push_back((prefix ? " " : "") + std::string(piece));
  }
  if (byte_level_ == nullptr) return spaced;
  const std::vector<std::string_view> cut =
      byte_level_->apply(std::vector<std::string_view>(spaced.begin(), spaced.end()));
  return {cut.begin(), cut.end()};
}

}  // namespace quern::smoke
