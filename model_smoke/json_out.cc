#include "model_smoke/json_out.h"

#include <nlohmann/json.hpp>

namespace quern::smoke {
namespace {

using Value = nlohmann::ordered_json;

}  // namespace

JsonOut::JsonOut() : value_(std::make_unique<Value>()) {}
JsonOut::JsonOut(bool value) : value_(std::make_unique<Value>(value)) {}
JsonOut::JsonOut(int value) : value_(std::make_unique<Value>(value)) {}
JsonOut::JsonOut(int64_t value) : value_(std::make_unique<Value>(value)) {}
JsonOut::JsonOut(uint64_t value) : value_(std::make_unique<Value>(value)) {}
JsonOut::JsonOut(double value) : value_(std::make_unique<Value>(value)) {}
JsonOut::JsonOut(const char* value) : value_(std::make_unique<Value>(value)) {}
JsonOut::JsonOut(const std::string& value) : value_(std::make_unique<Value>(value)) {}
JsonOut::JsonOut(const std::vector<int32_t>& values) : value_(std::make_unique<Value>(values)) {}
JsonOut::JsonOut(const std::vector<int64_t>& values) : value_(std::make_unique<Value>(values)) {}
JsonOut::JsonOut(const std::vector<std::string>& values)
    : value_(std::make_unique<Value>(values)) {}

JsonOut JsonOut::object(Members members) {
  JsonOut out;
  *out.value_ = Value::object();
  for (const auto& [key, value] : members) out.set(key, value);
  return out;
}

JsonOut JsonOut::array() {
  JsonOut out;
  *out.value_ = Value::array();
  return out;
}

JsonOut::JsonOut(const JsonOut& other) : value_(std::make_unique<Value>(*other.value_)) {}
JsonOut::JsonOut(JsonOut&& other) noexcept = default;
JsonOut::~JsonOut() = default;

JsonOut& JsonOut::operator=(JsonOut other) noexcept {
  value_ = std::move(other.value_);
  return *this;
}

void JsonOut::set(std::string_view key, const JsonOut& value) {
  (*value_)[std::string(key)] = *value.value_;
}

void JsonOut::push_back(const JsonOut& value) {
  value_->push_back(*value.value_);
}

std::string JsonOut::text() const {
  return value_->dump(1) + "\n";
}

}  // namespace quern::smoke
