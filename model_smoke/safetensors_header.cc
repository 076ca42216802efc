#include "model_smoke/safetensors_header.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"
#include "model_smoke/json_file.h"

namespace quern::smoke {
namespace {

// More dimensions than any framework writes; without a limit a header could name millions.
constexpr size_t kMaxRank = 32;

class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}
  Header take() { return std::move(header_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool v) override { unexpected(v ? "true" : "false"); }
  bool number_integer(number_integer_t v) override { unexpected("number " + std::to_string(v)); }
  bool number_float(number_float_t, const string_t& text) override { unexpected("number " + text); }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t v) override {
    if (place_ == Place::kShape) {
      if (v > static_cast<uint64_t>(INT64_MAX)) unexpected("number " + std::to_string(v));
      if (tensor().shape.size() == kMaxRank) fail("at most 32 dimensions", "more");
      tensor().shape.push_back(static_cast<int64_t>(v));
    } else if (place_ == Place::kOffsets) {
      if (offsets_ == 2) fail("data_offsets of exactly 2 numbers", "more");
      (offsets_ == 0 ? tensor().begin : tensor().end) = v;
      ++offsets_;
    } else {
      unexpected("number " + std::to_string(v));
    }
    return true;
  }

  bool string(string_t& v) override {
    if (place_ == Place::kMetadataValue) {
      header_.metadata.emplace_back(metadata_key_, std::move(v));
      place_ = Place::kMetadata;
      return true;
    }
    if (place_ != Place::kDType) unexpected("string \"" + printable(v, 60) + "\"");
    if (!parse_file_dtype(v, &tensor().dtype)) {
      fail("a dtype of the format (BF16, F16, F32, I8, F8_E4M3, ...)",
           "\"" + printable(v, 60) + "\"");
    }
    place_ = Place::kTensor;
    return true;
  }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kRoot;
        break;
      case Place::kMetadataStart:
        place_ = Place::kMetadata;
        break;
      case Place::kTensorStart:
        place_ = Place::kTensor;
        seen_ = 0;
        break;
      default:
        unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kRoot) {
      place_ = Place::kEnd;
    } else {
      if (place_ == Place::kTensor && seen_ != kAllFields) {
        fail("the fields dtype, shape and data_offsets", missing_field() + " is missing");
      }
      place_ = Place::kRoot;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kShapeStart) {
      place_ = Place::kShape;
    } else if (place_ == Place::kOffsetsStart) {
      place_ = Place::kOffsets;
      offsets_ = 0;
    } else {
      unexpected("an array");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && offsets_ != 2) {
      fail("data_offsets of exactly 2 numbers", std::to_string(offsets_));
    }
    place_ = Place::kTensor;
    return true;
  }

  bool key(string_t& k) override {
    if (place_ == Place::kRoot) {
      root_key(k);
    } else if (place_ == Place::kMetadata) {
      metadata_key_ = std::move(k);
      place_ = Place::kMetadataValue;
    } else {
      tensor_key(k);
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    std::string_view what = error.what();
    const size_t colon = what.find(": ");
    if (colon != std::string_view::npos) what.remove_prefix(colon + 2);
    throw InputError(file_, "header byte " + std::to_string(position), "valid JSON", what);
  }

 private:
  // What the next value is.
  enum class Place : uint8_t {
    kStart,
    kRoot,
    kEnd,
    kMetadataStart,
    kMetadata,
    kMetadataValue,
    kTensorStart,
    kTensor,
    kDType,
    kShapeStart,
    kShape,
    kOffsetsStart,
    kOffsets,
  };
  static constexpr unsigned kAllFields = 7;

  HeaderTensor& tensor() { return header_.tensors.back(); }

  void root_key(std::string& k) {
    if (k == "__metadata__") {
      if (seen_metadata_) fail_at(k, "__metadata__ once", "a duplicate key");
      seen_metadata_ = true;
      place_ = Place::kMetadataStart;
      return;
    }
    if (k.empty()) fail_at("header", "tensor names", "an empty name");
    if (k.find('\0') != std::string::npos) fail_at(k, "a name without NUL", "one with NUL");
    header_.tensors.emplace_back();
    tensor().name = std::move(k);
    place_ = Place::kTensorStart;
  }

  void tensor_key(const std::string& k) {
    unsigned bit = 0;
    if (k == "dtype") {
      bit = 1;
      place_ = Place::kDType;
    } else if (k == "shape") {
      bit = 2;
      place_ = Place::kShapeStart;
    } else if (k == "data_offsets") {
      bit = 4;
      place_ = Place::kOffsetsStart;
    } else {
      fail("only the fields dtype, shape and data_offsets", "\"" + printable(k, 60) + "\"");
    }
    if (seen_ & bit) fail("every field once", "a duplicate \"" + k + "\"");
    seen_ |= bit;
  }

  std::string missing_field() const {
    if (!(seen_ & 1)) return "dtype";
    return seen_ & 2 ? "data_offsets" : "shape";
  }

  [[noreturn]] void fail_at(std::string_view key, std::string_view expected,
                            std::string_view got) const {
    throw InputError(file_, key, expected, got);
  }
  [[noreturn]] void fail(std::string_view expected, std::string_view got) const {
    fail_at(header_.tensors.empty() ? "header" : header_.tensors.back().name, expected, got);
  }

  [[noreturn]] void unexpected(std::string_view got) const {
    switch (place_) {
      case Place::kStart:
        fail_at("header", "an object", got);
      case Place::kMetadataStart:
        fail_at("__metadata__", "an object of strings", got);
      case Place::kMetadataValue:
        fail_at("__metadata__." + metadata_key_, "a string", got);
      case Place::kTensorStart:
        fail("an object with dtype, shape and data_offsets", got);
      case Place::kDType:
        fail("dtype to be a string", got);
      case Place::kShapeStart:
        fail("shape to be an array", got);
      case Place::kShape:
        fail("dimensions that are integers from 0 to 2^63-1", got);
      case Place::kOffsetsStart:
        fail("data_offsets to be an array of 2", got);
      case Place::kOffsets:
        fail("data_offsets that are integers from 0 to 2^64-1", got);
      default:
        fail_at("header", "valid safetensors JSON", got);
    }
  }

  const std::string& file_;
  Header header_;
  Place place_ = Place::kStart;
  bool seen_metadata_ = false;
  std::string metadata_key_;
  unsigned seen_ = 0;
  int offsets_ = 0;
};

}  // namespace

Header parse_safetensors_header(std::string_view text, const std::string& file) {
  refuse_nul(text, file);
  HeaderReader reader(file);
  Json::sax_parse(text.begin(), text.end(), &reader);
  Header header = reader.take();
  // Duplicate keys of __metadata__ carry no data, but two readers could disagree on them.
  std::sort(header.metadata.begin(), header.metadata.end());
  for (size_t i = 1; i < header.metadata.size(); ++i) {
    if (header.metadata[i].first == header.metadata[i - 1].first) {
      throw InputError(file, "__metadata__." + header.metadata[i].first, "every key once",
                       "a duplicate key");
    }
  }
  return header;
}

}  // namespace quern::smoke
