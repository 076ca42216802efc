#pragma once

#include <cstdint>
#include <string>

namespace quern::smoke {

/// One linear module of a model: where it is and how tall it is.
struct ModuleRef {
  std::string name;  ///< "model.layers.0.mlp.up_proj"
  int64_t n = 0;
};

}  // namespace quern::smoke
