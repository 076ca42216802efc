#include "model_smoke/added_tokens.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"

namespace quern::smoke {
namespace {

constexpr size_t kMaxAdded = 100'000;
constexpr size_t kMaxContentBytes = 4096;

// Word characters of UTS 18, which the tokenizers library uses for single_word.
constexpr char kWordChar[] =
    "[\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}]";

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

// The White_Space property: all its members, as UTF-8.
constexpr std::string_view kSpaces[] = {
    "\t",           "\n",           "\v",           "\f",           "\r",           " ",
    "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81", "\xe2\x80\x82",
    "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86", "\xe2\x80\x87", "\xe2\x80\x88",
    "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f",
    "\xe3\x80\x80"};

size_t spaces_at_start(std::string_view s) {
  size_t at = 0;
  for (bool more = true; more;) {
    more = false;
    for (const std::string_view space : kSpaces) {
      if (!s.substr(at).starts_with(space)) continue;
      at += space.size();
      more = true;
      break;
    }
  }
  return at;
}

// Where the white space at the end of `s` begins.
size_t spaces_at_end(std::string_view s) {
  for (bool more = true; more;) {
    more = false;
    for (const std::string_view space : kSpaces) {
      if (!s.ends_with(space)) continue;
      s.remove_suffix(space.size());
      more = true;
      break;
    }
  }
  return s.size();
}

std::string_view last_char(std::string_view s) {
  size_t at = s.size() - 1;
  while (at > 0 && is_continuation(s[at])) --at;
  return s.substr(at);
}

}  // namespace

AddedTokens::AddedTokens(const JsonNode& list, const Bpe& bpe, const Normalizer& normalizer) {
  if (list.value().is_null()) return;
  list.require_array();
  if (list.size() > kMaxAdded) list.fail("at most 100000 added tokens");
  std::set<int32_t> ids;
  std::set<std::string, std::less<>> contents;
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonNode node = list.element(i);
    AddedToken token = read_token(node, bpe);
    if (!ids.insert(token.id).second) node.at("id").fail("an id no other added token has");
    if (!contents.insert(token.content).second) {
      node.at("content").fail("a content no other added token has");
    }
    if (token.special) special_.emplace(token.id, i);
    const std::string text =
        token.normalized ? normalizer.apply(token.content) : std::string(token.content);
    insert(token.normalized ? &normalized_ : &raw_, text, static_cast<int32_t>(i));
    if (token.single_word && word_char_ == nullptr) {
      word_char_ =
          std::make_unique<Regex>(kWordChar, Regex::Syntax::kPython, node.file(), node.path());
    }
    tokens_.push_back(std::move(token));
  }
}

AddedToken AddedTokens::read_token(const JsonNode& node, const Bpe& bpe) const {
  AddedToken t;
  t.id = static_cast<int32_t>(node.int_at("id", 0, Bpe::kMaxTokens - 1));
  const JsonNode content = node.at("content", "the text of the token");
  t.content = content.as_string();
  if (t.content.empty()) content.fail("a text that is not empty");
  if (t.content.size() > kMaxContentBytes) content.fail("at most 4096 bytes");
  t.special = node.bool_or("special", false);
  t.normalized = node.bool_or("normalized", !t.special);
  t.lstrip = node.bool_or("lstrip", false);
  t.rstrip = node.bool_or("rstrip", false);
  t.single_word = node.bool_or("single_word", false);
  const int32_t known = bpe.id_of(t.content);
  if (known >= 0 && known != t.id) {
    node.at("id").fail("id " + std::to_string(known) + ", which model.vocab has for \"" +
                       printable(t.content, 60) + "\"");
  }
  return t;
}

void AddedTokens::insert(Trie* trie, std::string_view text, int32_t token) {
  size_t at = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const auto it = (*trie)[at].next.find(byte);
    if (it != (*trie)[at].next.end()) {
      at = it->second;
      continue;
    }
    const size_t fresh = trie->size();
    (*trie)[at].next.emplace(byte, fresh);
    trie->emplace_back();
    at = fresh;
  }
  if (at != 0) (*trie)[at].token = token;
}

std::vector<AddedTokens::Part> AddedTokens::cut(std::string_view text, bool normalized) const {
  const Trie& trie = normalized ? normalized_ : raw_;
  std::vector<Part> parts;
  size_t done = 0;  // everything before it is in `parts`
  for (size_t at = 0; at < text.size();) {
    int32_t found = -1;
    size_t end = at;
    size_t node = 0;
    for (size_t i = at; i < text.size(); ++i) {
      const auto it = trie[node].next.find(static_cast<unsigned char>(text[i]));
      if (it == trie[node].next.end()) break;
      node = it->second;
      if (trie[node].token >= 0) {
        found = trie[node].token;
        end = i + 1;
      }
    }
    if (found < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    size_t begin = at;
    at = end;  // a token that is refused below is passed over as a whole
    if (token.single_word &&
        ((begin > 0 && word_char_->matches_start(last_char(text.substr(0, begin)))) ||
         (end < text.size() && word_char_->matches_start(text.substr(end, 4))))) {
      continue;
    }
    if (token.lstrip) begin = std::max(spaces_at_end(text.substr(0, begin)), done);
    if (token.rstrip) end += spaces_at_start(text.substr(end));
    begin = std::max(begin, done);
    if (begin > done) parts.push_back({-1, text.substr(done, begin - done)});
    parts.push_back({token.id, text.substr(begin, end - begin)});
    done = end;
    at = std::max(at, end);
  }
  if (done < text.size()) parts.push_back({-1, text.substr(done)});
  return parts;
}

}  // namespace quern::smoke
