#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace quern::jit {

struct MapLine {
  uint64_t begin = 0, end = 0;
  std::string rights;  ///< e.g. "r-xp"
  std::string text;
};

/// This process's mappings, from the kernel.
inline std::vector<MapLine> proc_maps() {
  std::vector<MapLine> lines;
  std::ifstream file("/proc/self/maps");
  for (std::string text; std::getline(file, text);) {
    MapLine line;
    char dash = 0;
    std::istringstream in(text);
    in >> std::hex >> line.begin >> dash >> line.end >> line.rights;
    line.text = text;
    lines.push_back(line);
  }
  return lines;
}

/// Rights at an address; "" where nothing is mapped.
inline std::string rights_at(const void* address) {
  const uint64_t a = reinterpret_cast<uintptr_t>(address);
  for (const MapLine& line : proc_maps()) {
    if (line.begin <= a && a < line.end) return line.rights;
  }
  return "";
}

}  // namespace quern::jit
