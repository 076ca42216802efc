#include "model_smoke/bpe.h"

#include <queue>
#include <utility>

#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"
#include "model_smoke/utf8.h"

namespace quern::smoke {
namespace {

// GPT-2's byte alphabet: printable Latin-1 bytes stand for themselves, the other 68 for U+0100 and
// up in order.
struct ByteAlphabet {
  std::array<char32_t, 256> char_of{};
  std::array<int16_t, 0x144> byte_of{};

  ByteAlphabet() {
    byte_of.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable_byte = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
      char_of[b] = printable_byte ? static_cast<char32_t>(b) : next++;
      byte_of[char_of[b]] = static_cast<int16_t>(b);
    }
  }
};

const ByteAlphabet& alphabet() {
  static const ByteAlphabet table;
  return table;
}

// Code point at `*at` of valid UTF-8; moves on. Longer than two bytes is outside the alphabet:
// 0xffff.
char32_t next_char(std::string_view s, size_t* at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char a = byte(*at);
  if (a < 0x80) return byte((*at)++);
  if (a >= 0xe0 || *at + 1 >= s.size()) {
    *at = s.size();
    return 0xffff;
  }
  const char32_t c = (static_cast<char32_t>(a & 31) << 6) | (byte(*at + 1) & 63u);
  *at += 2;
  return c;
}

void require_empty_text(const JsonNode& model, const char* key) {
  const auto node = model.find(key);
  if (node && !node->as_string().empty()) node->fail("null or an empty string");
}

}  // namespace

bool decode_byte_alphabet(std::string_view token, std::string* bytes) {
  bytes->clear();
  for (size_t at = 0; at < token.size();) {
    const char32_t c = next_char(token, &at);
    const int16_t b = c < alphabet().byte_of.size() ? alphabet().byte_of[c] : int16_t{-1};
    if (b < 0) return false;
    *bytes += static_cast<char>(b);
  }
  return true;
}

Bpe::Bpe(const JsonNode& model) : file_(model.file()) {
  model.require_object();
  const JsonNode type = model.at("type", "BPE");
  if (type.as_string() != "BPE") type.fail("the supported model type, BPE");
  if (const auto dropout = model.find("dropout"); dropout && dropout->as_number() != 0.0) {
    dropout->fail("null or 0");
  }
  if (model.bool_or("byte_fallback", false)) model.at("byte_fallback").fail("false");
  require_empty_text(model, "continuing_subword_prefix");
  require_empty_text(model, "end_of_word_suffix");
  ignore_merges_ = model.bool_or("ignore_merges", false);
  read_vocabulary(model.at("vocab", "an object from token to id"));
  if (const auto unk = model.find("unk_token"); unk && id_of(unk->as_string()) < 0) {
    unk->fail("a token of the vocabulary");
  }
  for (int b = 0; b < 256; ++b) {
    std::string token;
    append_utf8(alphabet().char_of[b], &token);
    byte_ids_[b] = id_of(token);
  }
  read_merges(model.at("merges", "an array"));
}

void Bpe::read_vocabulary(const JsonNode& vocab) {
  vocab.require_object();
  if (vocab.size() == 0) vocab.fail("at least one token");
  if (vocab.size() > static_cast<size_t>(kMaxTokens)) vocab.fail("at most 4000000 tokens");
  vocab_.reserve(vocab.size());
  for (const auto& [token, id] : vocab.value().items()) {
    const JsonNode node(id, file_, vocab.path() + "." + token);
    if (token.empty()) node.fail("tokens that are not empty");
    vocab_.emplace(token, static_cast<int32_t>(node.as_int(0, kMaxTokens - 1)));
  }
  if (!ignore_merges_) return;
  std::string bytes;
  for (const auto& [token, id] : vocab_) {
    if (decode_byte_alphabet(token, &bytes)) by_bytes_.emplace(bytes, id);
  }
}

void Bpe::read_merges(const JsonNode& merges) {
  merges.require_array();
  if (merges.size() > static_cast<size_t>(kMaxTokens)) merges.fail("at most 4000000 merges");
  merges_.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const JsonNode node = merges.element(i);
    if (node.value().is_array()) {
      if (node.size() != 2) node.fail("a pair of tokens");
      add_merge(node, node.element(0).as_string(), node.element(1).as_string(),
                static_cast<uint32_t>(i));
      continue;
    }
    const std::string_view text = node.as_string();
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      node.fail("two tokens with one space between");
    }
    add_merge(node, text.substr(0, space), text.substr(space + 1), static_cast<uint32_t>(i));
  }
}

void Bpe::add_merge(const JsonNode& node, std::string_view left, std::string_view right,
                    uint32_t rank) {
  const auto require = [&](std::string_view token) {
    const int32_t id = id_of(token);
    if (id < 0) {
      throw InputError(file_, node.path(), "a merge of tokens of the vocabulary",
                       "\"" + printable(token, 60) + "\", which is not in it");
    }
    return id;
  };
  const int32_t a = require(left);
  const int32_t b = require(right);
  const int32_t id = require(std::string(left) + std::string(right));
  // The last of two equal merges counts, as in the tokenizers library.
  merges_[static_cast<uint64_t>(a) << 32 | static_cast<uint32_t>(b)] = {rank, id};
}

int32_t Bpe::id_of(std::string_view token) const {
  const auto it = vocab_.find(std::string(token));
  return it == vocab_.end() ? -1 : it->second;
}

const Bpe::Merge* Bpe::find_merge(int32_t left, int32_t right) const {
  const auto it = merges_.find(static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right));
  return it == merges_.end() ? nullptr : &it->second;
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>* ids) const {
  if (ignore_merges_) {
    if (const auto it = by_bytes_.find(std::string(piece)); it != by_bytes_.end()) {
      ids->push_back(it->second);
      return;
    }
  }
  std::vector<Symbol> symbols = one_symbol_per_byte(piece);
  merge_all(&symbols);
  for (int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[i].next) {
    ids->push_back(symbols[i].id);
  }
}

std::vector<Bpe::Symbol> Bpe::one_symbol_per_byte(std::string_view piece) const {
  if (piece.size() > static_cast<size_t>(INT32_MAX)) {
    throw InputError("text", "", "pieces below 2 GiB", std::to_string(piece.size()) + " bytes");
  }
  const auto n = static_cast<int32_t>(piece.size());
  std::vector<Symbol> symbols(piece.size());
  for (int32_t i = 0; i < n; ++i) {
    const auto byte = static_cast<unsigned char>(piece[i]);
    if (byte_ids_[byte] < 0) {
      throw InputError(file_, "model.vocab", "a token for every byte of the text",
                       "none for byte " + std::to_string(byte));
    }
    symbols[i] = {byte_ids_[byte], i - 1, i + 1 < n ? i + 1 : -1};
  }
  return symbols;
}

// The heap holds the merges possible so far, lowest rank first and leftmost among equals. An entry
// is stale when its pair has changed since, which the rank of the pair's own merge tells. A step
// costs log n, where looking for the best pair again would cost n: one word of 100 KB is common in
// hostile text.
void Bpe::merge_all(std::vector<Symbol>* symbols) const {
  struct Candidate {
    uint32_t rank;
    int32_t left;
    bool operator>(const Candidate& o) const {
      return rank != o.rank ? rank > o.rank : left > o.left;
    }
  };
  std::vector<Symbol>& s = *symbols;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto offer = [&](int32_t left) {
    if (left < 0 || s[left].next < 0) return;
    const Merge* m = find_merge(s[left].id, s[s[left].next].id);
    if (m != nullptr) heap.push({m->rank, left});
  };
  for (int32_t i = 0; i + 1 < static_cast<int32_t>(s.size()); ++i) offer(i);
  while (!heap.empty()) {
    const Candidate c = heap.top();
    heap.pop();
    Symbol& left = s[c.left];
    if (left.id < 0 || left.next < 0) continue;
    Symbol& right = s[left.next];
    const Merge* now = find_merge(left.id, right.id);
    if (now == nullptr || now->rank != c.rank) continue;
    left.id = now->id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) s[left.next].previous = c.left;
    offer(left.previous);
    offer(c.left);
  }
}

}  // namespace quern::smoke
