#pragma once

#include <cstdint>
#include <ostream>
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

/// The bytes of a safetensors file of F32 tensors, in order.
void write_safetensors(std::ostream& out, const std::vector<NamedMatrix>& tensors);

}  // namespace quern::smoke
