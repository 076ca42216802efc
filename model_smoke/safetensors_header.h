#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model_smoke/safetensors.h"

namespace quern::smoke {

/// One entry of the JSON header as it is written: offsets are not checked against anything yet.
struct HeaderTensor {
  std::string name;
  FileDType dtype = FileDType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct Header {
  std::vector<HeaderTensor> tensors;  ///< in the order of the header
  std::vector<std::pair<std::string, std::string>> metadata;
};

/// Reads the JSON of a safetensors header as a stream: a header may have 100 MB, and a tree of JSON
/// values would take ten times that. Checks form only (fields, types, numbers); duplicate tensor
/// names are found by the caller, which sorts them anyway.
Header parse_safetensors_header(std::string_view text, const std::string& file);

}  // namespace quern::smoke
