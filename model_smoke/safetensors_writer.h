#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quern::smoke {

/// One F32 matrix of a file to write; the data must live until the file is written.
struct NamedMatrix {
  std::string name;
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
};

/// Writes a safetensors file of F32 tensors, in order. Throws InputError naming the path when the
/// file cannot be written.
void write_safetensors(const std::string& path, const std::vector<NamedMatrix>& tensors);

/// Writes text; throws as above.
void write_text_file(const std::string& path, const std::string& text);

}  // namespace quern::smoke
