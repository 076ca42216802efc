#include "model_smoke/safetensors_writer.h"

#include <bit>

#include <nlohmann/json.hpp>

namespace quern::smoke {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

}  // namespace

void write_safetensors(std::ostream& out, const std::vector<NamedMatrix>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  uint64_t offset = 0;
  for (const NamedMatrix& t : tensors) {
    const uint64_t bytes = static_cast<uint64_t>(t.rows * t.cols) * sizeof(float);
    header[t.name] = {
        {"dtype", "F32"}, {"shape", {t.rows, t.cols}}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof(length));
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const NamedMatrix& t : tensors) {
    out.write(reinterpret_cast<const char*>(t.data),
              static_cast<std::streamsize>(t.rows * t.cols) * 4);
  }
}

}  // namespace quern::smoke
