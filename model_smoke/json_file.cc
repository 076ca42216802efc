#include "model_smoke/json_file.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"

namespace quern::smoke {
namespace {

// Builds a value while refusing what nlohmann::json::parse lets pass: duplicate keys (it keeps the
// last) and unbounded depth. Open containers are a stack of pointers; a pointer stays valid because
// only the innermost container grows while it is open.
class StrictBuilder : public nlohmann::json_sax<Json> {
 public:
  explicit StrictBuilder(const std::string& file) : file_(file) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool v) override { return add(v); }
  bool number_integer(number_integer_t v) override { return add(v); }
  bool number_unsigned(number_unsigned_t v) override { return add(v); }
  bool number_float(number_float_t v, const string_t&) override { return add(v); }
  bool string(string_t& v) override { return add(std::move(v)); }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& k) override {
    if (++keys_ > kMaxJsonKeys) fail("at most " + std::to_string(kMaxJsonKeys) + " keys", "more");
    stack_.back().key = std::move(k);
    if (stack_.back().value->contains(stack_.back().key)) {
      fail("every key once", "a duplicate key");
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
    std::string_view what = error.what();
    const size_t colon = what.find(": ");
    if (colon != std::string_view::npos) what.remove_prefix(colon + 2);
    (void)token;
    throw InputError(file_, "byte " + std::to_string(position), "valid JSON", what);
  }

 private:
  struct Frame {
    Json* value;
    std::string key;
  };

  [[noreturn]] void fail(std::string_view expected, std::string_view got) const {
    std::string path;
    for (const Frame& f : stack_) {
      if (!f.value->is_object()) {
        path += "[" + std::to_string(f.value->size()) + "]";
      } else {
        path += (path.empty() ? "" : ".") + f.key;
      }
    }
    throw InputError(file_, path, expected, got);
  }

  Json* place(Json v) {
    if (stack_.empty()) {
      root_ = std::move(v);
      return &root_;
    }
    Frame& top = stack_.back();
    if (top.value->is_array()) {
      top.value->push_back(std::move(v));
      return &top.value->back();
    }
    Json& slot = (*top.value)[top.key];
    slot = std::move(v);
    return &slot;
  }
  bool add(Json v) {
    place(std::move(v));
    return true;
  }
  bool open(Json v) {
    if (stack_.size() >= kMaxJsonDepth) {
      fail("at most " + std::to_string(kMaxJsonDepth) + " levels", "a deeper value");
    }
    stack_.push_back({place(std::move(v)), {}});
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  const std::string& file_;
  Json root_;
  std::vector<Frame> stack_;
  uint64_t keys_ = 0;
};

}  // namespace

void refuse_nul(std::string_view text, const std::string& file) {
  const size_t at = text.find('\0');
  if (at == std::string_view::npos) return;
  throw InputError(file, "byte " + std::to_string(at), "valid JSON", "a NUL byte");
}

Json parse_json(std::string_view text, const std::string& file) {
  if (text.starts_with("\xef\xbb\xbf")) {
    throw InputError(file, "byte 0", "valid JSON", "a byte order mark");
  }
  refuse_nul(text, file);
  StrictBuilder builder(file);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

std::string describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    case Json::value_t::string:
      return "string \"" + printable(value.get_ref<const std::string&>(), 60) + "\"";
    case Json::value_t::array:
      return "an array of " + std::to_string(value.size());
    case Json::value_t::object:
      return "an object";
    default:
      return "number " + value.dump();
  }
}

void JsonNode::fail(std::string_view expected, std::string_view hint) const {
  throw InputError(file_, path_, expected, describe(*value_), hint);
}

bool JsonNode::has(std::string_view key) const {
  return find(key).has_value();
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  require_object();
  const auto it = value_->find(key);
  if (it == value_->end() || it->is_null()) return std::nullopt;
  return JsonNode(*it, file_, child_path(key));
}

JsonNode JsonNode::at(std::string_view key, std::string_view expected) const {
  require_object();
  const auto it = value_->find(key);
  if (it == value_->end()) throw InputError(file_, child_path(key), expected, "nothing");
  return JsonNode(*it, file_, child_path(key));
}

JsonNode JsonNode::element(size_t index) const {
  return JsonNode(value_->at(index), file_, path_ + "[" + std::to_string(index) + "]");
}

std::string JsonNode::child_path(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

void JsonNode::require_object() const {
  if (!value_->is_object()) fail("an object");
}

void JsonNode::require_array() const {
  if (!value_->is_array()) fail("an array");
}

size_t JsonNode::size() const {
  return value_->size();
}

int64_t JsonNode::as_int(int64_t min, int64_t max) const {
  const auto rule = [&] {
    return "an integer from " + std::to_string(min) + " to " + std::to_string(max);
  };
  if (value_->is_number_unsigned()) {
    const auto v = value_->get<uint64_t>();
    if (v > static_cast<uint64_t>(INT64_MAX)) fail(rule());
  } else if (!value_->is_number_integer()) {
    fail(rule());
  }
  const auto v = value_->get<int64_t>();
  if (v < min || v > max) fail(rule());
  return v;
}

double JsonNode::as_number() const {
  if (!value_->is_number()) fail("a number");
  return value_->get<double>();
}

bool JsonNode::as_bool() const {
  if (!value_->is_boolean()) fail("true or false");
  return value_->get<bool>();
}

const std::string& JsonNode::as_string() const {
  if (!value_->is_string()) fail("a string");
  return value_->get_ref<const std::string&>();
}

int64_t JsonNode::int_at(std::string_view key, int64_t min, int64_t max) const {
  return at(key, "an integer from " + std::to_string(min) + " to " + std::to_string(max))
      .as_int(min, max);
}

int64_t JsonNode::int_or(std::string_view key, int64_t fallback, int64_t min, int64_t max) const {
  require_object();
  // A null is not "absent" here: where a number is meant it is a mistake of the writer.
  if (!value_->contains(key)) return fallback;
  return at(key, "").as_int(min, max);
}

double JsonNode::number_or(std::string_view key, double fallback) const {
  require_object();
  return value_->contains(key) ? at(key, "").as_number() : fallback;
}

bool JsonNode::bool_or(std::string_view key, bool fallback) const {
  const auto node = find(key);
  return node ? node->as_bool() : fallback;
}

std::string JsonNode::string_or(std::string_view key, std::string_view fallback) const {
  const auto node = find(key);
  return node ? node->as_string() : std::string(fallback);
}

}  // namespace quern::smoke
