#include "model_smoke/tokenizer.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "model_smoke/added_tokens.h"
#include "model_smoke/bpe.h"
#include "model_smoke/input_error.h"
#include "model_smoke/json_file.h"
#include "model_smoke/normalizer.h"
#include "model_smoke/pretokenizer.h"
#include "model_smoke/utf8.h"

namespace quern::smoke {
namespace {

// The largest published files have about 35 MB.
constexpr uint64_t kMaxTokenizerBytes = 64'000'000;

void require_null(const JsonNode& root, const char* key, const char* why) {
  if (const auto node = root.find(key)) node->fail("null", why);
}

// A Sequence of one ByteLevel, or a ByteLevel. Anything else would decode to other text.
void check_decoder(const JsonNode& node) {
  const JsonNode type = node.at("type", "the name of a decoder");
  if (type.as_string() == "Sequence") {
    const JsonNode list = node.at("decoders", "an array");
    list.require_array();
    if (list.size() != 1) list.fail("one decoder, ByteLevel");
    check_decoder(list.element(0));
    return;
  }
  if (type.as_string() != "ByteLevel") type.fail("ByteLevel");
}

}  // namespace

struct Tokenizer::Impl {
  std::string file;
  Normalizer normalizer;
  PreTokenizer pretokenizer;
  Bpe bpe;
  AddedTokens added;
  std::vector<std::string> bytes;       // by id: what it decodes to
  std::vector<int32_t> prefix, suffix;  // what the post-processor puts around a text

  explicit Impl(const JsonNode& root);
  void fill_bytes(const JsonNode& root);
  void read_post_processor(const JsonNode& node);
  void read_template(const JsonNode& node);
  std::vector<int32_t> template_ids(const JsonNode& node, const JsonNode& piece) const;
  void encode_plain(std::string_view text, std::vector<int32_t>* ids) const;
  std::optional<int32_t> id_of(std::string_view token) const;
};

Tokenizer::Impl::Impl(const JsonNode& root)
    : file(root.file()),
      normalizer(root.at("normalizer", "a normalizer, or null")),
      pretokenizer(root.at("pre_tokenizer", "a pre-tokenizer")),
      bpe(root.at("model", "the BPE model")),
      added(root.at("added_tokens", "an array"), bpe, normalizer) {
  require_null(root, "truncation", "it would cut every text");
  require_null(root, "padding", "it would pad every text");
  check_decoder(root.at("decoder", "a ByteLevel decoder"));
  fill_bytes(root);
  if (const auto post = root.find("post_processor")) read_post_processor(*post);
}

// Every id from 0 to the largest belongs to exactly one token: that bounds what an id can size.
void Tokenizer::Impl::fill_bytes(const JsonNode& root) {
  const size_t most = bpe.vocabulary().size() + added.tokens().size();
  const JsonNode vocab = root.at("model").at("vocab");
  std::vector<const std::string*> text_of(most, nullptr);
  const auto put = [&](int32_t id, const std::string& token, const JsonNode& where) {
    if (static_cast<size_t>(id) >= most) {
      throw InputError(file, where.path(), "ids without a gap, below " + std::to_string(most),
                       "id " + std::to_string(id) + " for \"" + printable(token, 60) + "\"");
    }
    if (text_of[static_cast<size_t>(id)] != nullptr && *text_of[static_cast<size_t>(id)] != token) {
      throw InputError(file, where.path(), "every id once",
                       "id " + std::to_string(id) + " for \"" +
                           printable(*text_of[static_cast<size_t>(id)], 60) + "\" and \"" +
                           printable(token, 60) + "\"");
    }
    text_of[static_cast<size_t>(id)] = &token;
  };
  for (const auto& [token, id] : bpe.vocabulary()) put(id, token, vocab);
  for (const AddedToken& t : added.tokens()) put(t.id, t.content, root.at("added_tokens"));
  while (!text_of.empty() && text_of.back() == nullptr) text_of.pop_back();
  bytes.resize(text_of.size());
  for (size_t id = 0; id < text_of.size(); ++id) {
    if (text_of[id] == nullptr) {
      throw InputError(
          file, vocab.path(), "ids without a gap",
          "no token with id " + std::to_string(id) + " of " + std::to_string(text_of.size()));
    }
    if (!decode_byte_alphabet(*text_of[id], &bytes[id])) bytes[id] = *text_of[id];
  }
}

void Tokenizer::Impl::read_post_processor(const JsonNode& node) {
  const JsonNode type = node.at("type", "the name of a post-processor");
  const std::string& name = type.as_string();
  if (name == "Sequence") {
    const JsonNode list = node.at("processors", "an array");
    list.require_array();
    for (size_t i = 0; i < list.size(); ++i) read_post_processor(list.element(i));
  } else if (name == "TemplateProcessing") {
    if (!prefix.empty() || !suffix.empty()) type.fail("at most one TemplateProcessing");
    read_template(node);
  } else if (name != "ByteLevel") {  // ByteLevel moves offsets only
    type.fail("ByteLevel, TemplateProcessing, or a Sequence of them");
  }
}

void Tokenizer::Impl::read_template(const JsonNode& node) {
  const JsonNode pieces = node.at("single", "an array");
  pieces.require_array();
  bool seen_text = false;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const JsonNode piece = pieces.element(i);
    if (piece.has("Sequence")) {
      if (seen_text) piece.fail("the text once");
      seen_text = true;
      continue;
    }
    const std::vector<int32_t> ids =
        template_ids(node, piece.at("SpecialToken", "Sequence or SpecialToken"));
    std::vector<int32_t>& to = seen_text ? suffix : prefix;
    to.insert(to.end(), ids.begin(), ids.end());
  }
  if (!seen_text) pieces.fail("a Sequence among the pieces");
}

std::vector<int32_t> Tokenizer::Impl::template_ids(const JsonNode& node,
                                                   const JsonNode& piece) const {
  const JsonNode name = piece.at("id", "the name of a special token");
  const JsonNode table = node.at("special_tokens", "an object");
  const JsonNode ids = table.at(name.as_string(), "the special token that the template names")
                           .at("ids", "an array of ids");
  ids.require_array();
  if (ids.size() == 0 || ids.size() > 64) ids.fail("1 to 64 ids");
  std::vector<int32_t> out;
  for (size_t i = 0; i < ids.size(); ++i) {
    out.push_back(
        static_cast<int32_t>(ids.element(i).as_int(0, static_cast<int64_t>(bytes.size()) - 1)));
  }
  return out;
}

std::optional<int32_t> Tokenizer::Impl::id_of(std::string_view token) const {
  for (const AddedToken& t : added.tokens()) {
    if (t.content == token) return t.id;
  }
  const int32_t id = bpe.id_of(token);
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

void Tokenizer::Impl::encode_plain(std::string_view text, std::vector<int32_t>* ids) const {
  for (const std::string& piece : pretokenizer.split(text)) bpe.encode(piece, ids);
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::parse(std::string_view json, const std::string& file) {
  const Json value = parse_json(json, file);
  const JsonNode root(value, file, "");
  root.require_object();
  return Tokenizer(std::make_unique<Impl>(root));
}

Tokenizer Tokenizer::load(const ModelDir& dir) {
  return parse(dir.read_text("tokenizer.json", kMaxTokenizerBytes), dir.label("tokenizer.json"));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool with_special) const {
  const size_t good = valid_utf8_prefix(text);
  if (good != text.size()) {
    throw InputError("text", "byte " + std::to_string(good), "valid UTF-8",
                     "byte " + std::to_string(static_cast<unsigned char>(text[good])));
  }
  std::vector<int32_t> ids;
  if (with_special) ids = impl_->prefix;
  // Tokens that are not normalized are found in the text as it is, the others after normalization.
  for (const AddedTokens::Part& part : impl_->added.cut(text, false)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    const std::string normal = impl_->normalizer.apply(part.text);
    for (const AddedTokens::Part& inner : impl_->added.cut(normal, true)) {
      if (inner.id >= 0) {
        ids.push_back(inner.id);
      } else {
        impl_->encode_plain(inner.text, &ids);
      }
    }
  }
  if (with_special) ids.insert(ids.end(), impl_->suffix.begin(), impl_->suffix.end());
  return ids;
}

std::string Tokenizer::decode(Span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    const std::string_view token = bytes_of(id);
    if (!skip_special || !is_special(id)) bytes += token;
  }
  return replace_ill_formed(bytes);
}

std::string_view Tokenizer::bytes_of(int32_t id) const {
  if (!has_id(id)) {
    throw InputError(impl_->file, "", "a token id from 0 to " + std::to_string(id_limit() - 1),
                     std::to_string(id));
  }
  return impl_->bytes[static_cast<size_t>(id)];
}

bool Tokenizer::has_id(int64_t id) const noexcept {
  return id >= 0 && id < id_limit();
}
bool Tokenizer::is_special(int32_t id) const noexcept {
  return impl_->added.is_special(id);
}
std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  return impl_->id_of(token);
}
int64_t Tokenizer::id_limit() const noexcept {
  return static_cast<int64_t>(impl_->bytes.size());
}

std::string StreamDecoder::push(int32_t id) {
  const std::string_view bytes = tokenizer_->bytes_of(id);
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  held_ += bytes;
  const size_t ready = held_.size() - incomplete_utf8_tail(held_);
  std::string out = replace_ill_formed(std::string_view(held_).substr(0, ready));
  held_.erase(0, ready);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out = replace_ill_formed(held_);
  held_.clear();
  return out;
}

}  // namespace quern::smoke
