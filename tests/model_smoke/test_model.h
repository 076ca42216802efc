#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/model_smoke/temp_dir.h"

namespace quern::smoke::test {

using Json = nlohmann::json;

struct TestTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

/// Bytes of a safetensors file, written by an independent writer (nothing of model_smoke).
std::string safetensors_bytes(const std::vector<TestTensor>& tensors);
/// The same from a header text and a data section, with a true length prefix.
std::string safetensors_raw(std::string_view header, std::string_view data);
/// The 8-byte little-endian prefix.
std::string length_prefix(uint64_t n);

/// A whole model directory in memory, to be bent and written.
struct TestModel {
  Json config, generation, tokenizer;
  std::vector<TestTensor> tensors;
  /// Files with these bytes instead of (or beside) the ones above.
  std::map<std::string, std::string> raw;
  /// Files that are not written.
  std::vector<std::string> absent;
  /// Runs last, with the directory's path: links, FIFOs, ...
  std::function<void(const TempDir&)> after;

  TestTensor& tensor(std::string_view name);
  void write(const TempDir& dir) const;
  /// Puts the tensors into `shards` files and returns the index (as JSON to bend further). The
  /// files go to `raw`, model.safetensors is left out.
  Json shard(int shards);
};

/// Qwen3.5 dense with two layers (one of each kind), hidden 16, a byte-level tokenizer of 260
/// tokens. Loads and runs.
TestModel tiny_model();
/// The same weights as w8a8_int8, lm_head and the two narrow projections plain.
TestModel tiny_int8_model();
/// The same as compressed-tensors writes it.
TestModel tiny_compressed_int8_model();

/// Adds a bias to every projection of the attention layer.
TestModel with_biases(TestModel model);
/// The int8 model with the module of that name plain: neighbours of two formats.
TestModel mixed_model(const std::string& module);

/// A byte-level BPE tokenizer.json: the 256 bytes, three merges, one special token.
Json tiny_tokenizer();
/// The character that stands for a byte in the byte alphabet, as UTF-8.
std::string byte_char(int byte);

}  // namespace quern::smoke::test
