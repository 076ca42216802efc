// reliability.md 5.2 "Length prefix", "JSON", "Offsets"; bug log T04, F01-F04, F08, F11.
#include <cstdio>
#include <filesystem>

#include "tests/model_smoke/malformed_case.h"

namespace quern::smoke::test {
namespace {

constexpr char kFile[] = "model.safetensors";

MalformedCase bytes_case(std::string name, std::string bytes, std::vector<std::string> says) {
  says.insert(says.begin(), kFile);
  return {std::move(name), [bytes](TestModel* m) { m->raw[kFile] = bytes; }, std::move(says)};
}

MalformedCase header_case(std::string name, std::string header, size_t data_bytes,
                          std::vector<std::string> says) {
  return bytes_case(std::move(name), safetensors_raw(header, std::string(data_bytes, '\1')),
                    std::move(says));
}

// One F32 tensor "t" with the given shape and offsets, as JSON text.
MalformedCase tensor_case(std::string name, const std::string& shape, const std::string& offsets,
                          size_t data_bytes, std::vector<std::string> says) {
  says.insert(says.begin(), "t: ");
  return header_case(
      std::move(name),
      R"({"t":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
      data_bytes, std::move(says));
}

void add_prefixes(std::vector<MalformedCase>* out) {
  for (const int n : {0, 1, 7}) {
    out->push_back(bytes_case("st_file_of_" + std::to_string(n), std::string(n, '\0'),
                              {"header length", "at least 8 bytes"}));
  }
  const std::string good = safetensors_bytes(tiny_model().tensors);
  const auto with_prefix = [&](uint64_t n) { return length_prefix(n) + good.substr(8); };
  const uint64_t size = good.size();
  const struct {
    const char* name;
    uint64_t n;
    const char* reason;
  } rows[] = {
      {"zero", 0, "an empty header"},
      {"one", 1, "valid JSON"},
      {"one_past_file", size - 7, "at most"},
      {"file_size", size, "at most"},
      {"2_31", uint64_t{1} << 31, "at most 100000000"},
      {"2_32", uint64_t{1} << 32, "at most 100000000"},
      {"2_63", uint64_t{1} << 63, "at most 100000000"},
      {"2_64_minus_1", ~uint64_t{0}, "at most 100000000"},
      {"2_64_minus_4", 0xFFFFFFFFFFFFFFFCull, "at most 100000000"},
      {"2_64_minus_8", ~uint64_t{0} - 7, "at most 100000000"},
  };
  for (const auto& r : rows) {
    out->push_back(
        bytes_case(std::string("st_prefix_") + r.name, with_prefix(r.n), {"header", r.reason}));
  }
  out->push_back(bytes_case("st_prefix_only", length_prefix(16),
                            {"header length", "the 0 bytes that follow"}));
  out->push_back({"st_header_over_100_MB",
                  [](TestModel* m) {
                    m->raw[kFile] = length_prefix(100'000'001) + "{";
                    m->after = [](const TempDir& dir) {
                      std::filesystem::resize_file(dir.file(kFile), 100'000'100);  // sparse
                    };
                  },
                  {kFile, "header length", "at most 100000000"}});
  out->push_back(bytes_case("st_header_nul_then_more",
                            safetensors_raw(std::string_view("{}\0{\"x\":1}", 10), ""),
                            {"byte 2", "a NUL byte"}));
  out->push_back(bytes_case("st_trailing_byte", good + "x", {"data section", "bytes"}));
  out->push_back(bytes_case("st_cut_by_one", good.substr(0, good.size() - 1),
                            {"within the data section", "download complete"}));
}

void add_json(std::vector<MalformedCase>* out) {
  const std::string t = R"("t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const auto deep = [](size_t n) { return std::string(n, '['); };
  const auto add = [&](const char* name, const std::string& header, std::vector<std::string> says) {
    out->push_back(header_case(std::string("st_") + name, header, 4, std::move(says)));
  };
  add("spaces", std::string(64, ' '), {"header", "'{'"});
  add("array", "[]", {"header", "'{'"});
  add("byte_order_mark", "\xef\xbb\xbf{" + t + "}", {"header", "'{'"});
  add("bad_utf8", "{\"t\xff\":1}", {"header", "UTF-8"});
  add("nul_in_name", R"({"t\u0000":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", {"NUL"});
  add("empty_name", R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", {"empty name"});
  add("trailing_text", "{" + t + "} x", {"header", "valid JSON"});
  add("cut_off", "{" + t, {"header", "valid JSON"});
  add("deep", "{\"t\":" + deep(100'000), {"t: ", "an object with dtype"});
  add("deep_shape", R"({"t":{"dtype":"F32","shape":)" + deep(100'000), {"t: ", "dimensions"});
  add("duplicate_tensor", "{" + t + "," + t + "}", {"t: ", "duplicate name"});
  add("duplicate_field", R"({"t":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
      {"t: ", "duplicate \"dtype\""});
  add("metadata_number", "{\"__metadata__\":{\"a\":1}," + t + "}", {"__metadata__.a", "a string"});
  add("metadata_array", "{\"__metadata__\":[]," + t + "}",
      {"__metadata__", "an object of strings"});
  add("metadata_twice", "{\"__metadata__\":{},\"__metadata__\":{}," + t + "}",
      {"__metadata__", "duplicate"});
  add("metadata_duplicate_key", R"({"__metadata__":{"a":"1","a":"2"},)" + t + "}",
      {"__metadata__.a", "duplicate"});
  add("unknown_dtype", R"({"t":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})",
      {"t: ", "dtype of the format", "F33"});
  add("dtype_lower_case", R"({"t":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})",
      {"t: ", "dtype of the format"});
  add("dtype_number", R"({"t":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})",
      {"t: ", "dtype to be a string"});
  add("dtype_huge",
      R"({"t":{"dtype":")" + std::string(1'000'000, 'A') +
          R"(","shape":[1],"data_offsets":[0,4]}})",
      {"t: ", "dtype of the format"});
  add("no_dtype", R"({"t":{"shape":[1],"data_offsets":[0,4]}})", {"t: ", "dtype is missing"});
  add("no_shape", R"({"t":{"dtype":"F32","data_offsets":[0,4]}})", {"t: ", "shape is missing"});
  add("no_offsets", R"({"t":{"dtype":"F32","shape":[1]}})", {"t: ", "data_offsets is missing"});
  add("extra_field", R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})",
      {"t: ", "only the fields", "\"x\""});
  add("tensor_null", R"({"t":null})", {"t: ", "an object with dtype", "null"});
  add("no_tensors_but_data", "{}", {"data section", "0 bytes"});
}

void add_shapes(std::vector<MalformedCase>* out) {
  const auto add = [&](const char* name, const char* shape, const char* reason) {
    out->push_back(tensor_case(std::string("st_dim_") + name, shape, "[0,4]", 4, {reason}));
  };
  add("1e3", "[1e3]", "dimensions that are integers");
  add("1_point_0", "[1.0]", "dimensions that are integers");
  add("negative", "[-1]", "dimensions that are integers");
  add("minus_0", "[-0]", "dimensions that are integers");
  add("string", "[\"1\"]", "dimensions that are integers");
  add("null", "[null]", "dimensions that are integers");
  add("true", "[true]", "dimensions that are integers");
  add("2_53_plus_1", "[9007199254740993]", "4 bytes");
  add("2_63", "[9223372036854775808]", "dimensions that are integers");
  add("2_64", "[18446744073709551616]", "dimensions that are integers");
  add("not_array", "4", "shape to be an array");
  add("overflow", "[4294967296,4294967296]", "63 bits");
  add("overflow_then_zero", "[4611686018427387904,4,0]", "63 bits");
  add("bits_overflow", "[4611686018427387904]", "64 bits");
  add("2_60_tensor", "[1152921504606846976]", "64 bits");
  std::string rank = "[1";
  for (int i = 1; i < 10'000; ++i) rank += ",1";
  out->push_back(tensor_case("st_rank_10000", rank + "]", "[0,4]", 4, {"32 dimensions"}));
  out->push_back(header_case("st_4_bit_odd",
                             R"({"t":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2,
                             {"t: ", "whole bytes"}));
}

void add_offsets(std::vector<MalformedCase>* out) {
  const auto add = [&](const char* name, const char* shape, const char* offsets, size_t data,
                       const char* reason) {
    out->push_back(tensor_case(std::string("st_offsets_") + name, shape, offsets, data, {reason}));
  };
  add("none", "[1]", "[]", 4, "exactly 2");
  add("one", "[1]", "[5]", 4, "exactly 2");
  add("three", "[1]", "[0,4,8]", 4, "exactly 2");
  add("reversed", "[2]", "[8,0]", 8, "begin <= end");
  add("negative", "[4]", "[-8,8]", 16, "2^64-1");
  add("2_63", "[2]", "[9223372036854775808,9223372036854775816]", 8, "within the data section");
  add("2_64", "[2]", "[0,18446744073709551616]", 8, "2^64-1");
  add("float", "[2]", "[0,8.0]", 8, "2^64-1");
  add("past_end", "[4]", "[0,16]", 8, "within the data section");
  add("hole_at_start", "[1]", "[4,8]", 8, "begins at 0");
  add("span_too_long", "[32,8]", "[0,65536]", 65536, "1024 bytes");   // T04
  add("span_too_short", "[1000,1000]", "[0,4]", 4, "4000000 bytes");  // F01
  add("span_of_nothing", "[]", "[0,0]", 0, "4 bytes");
  const auto two = [](const char* a, const char* b) {
    return std::string(R"({"t":{"dtype":"U8","shape":[4],"data_offsets":)") + a +
           R"(},"u":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}";
  };
  out->push_back(header_case("st_overlap", two("[0,4]", "[2,6]"), 6, {"u: ", "no overlap"}));
  out->push_back(header_case("st_same_place", two("[0,4]", "[0,4]"), 4, {"u: ", "no overlap"}));
  out->push_back(header_case("st_hole", two("[0,4]", "[6,10]"), 10, {"u: ", "no hole"}));
}

void set_bf16(TestModel* m, const char* tensor, size_t index, uint16_t bits) {
  std::string& bytes = m->tensor(tensor).bytes;
  bytes[2 * index] = static_cast<char>(bits & 255);
  bytes[2 * index + 1] = static_cast<char>(bits >> 8);
}

void add_values(std::vector<MalformedCase>* out) {
  out->push_back({"value_nan",
                  [](TestModel* m) { set_bf16(m, "model.norm.weight", 5, 0x7fc0); },
                  {kFile, "model.norm.weight", "NaN at index 5"}});
  out->push_back(
      {"value_inf",
       [](TestModel* m) { set_bf16(m, "model.layers.0.mlp.up_proj.weight", 17, 0xff80); },
       {kFile, "model.layers.0.mlp.up_proj.weight", "-infinity at index 17"}});
  out->push_back(
      {"value_nan_in_last_tensor",
       [](TestModel* m) { set_bf16(m, "model.layers.1.self_attn.k_norm.weight", 15, 0x7f81); },
       {kFile, "k_norm.weight", "NaN at index 15"}});
}

}  // namespace

std::vector<MalformedCase> malformed_safetensors() {
  std::vector<MalformedCase> out;
  add_prefixes(&out);
  add_json(&out);
  add_shapes(&out);
  add_offsets(&out);
  add_values(&out);
  return out;
}

}  // namespace quern::smoke::test
