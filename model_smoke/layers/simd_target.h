#pragma once

#include <string>

#include "model_smoke/layers/exec.h"

namespace quern::smoke {

/// What a layer's kernel is called: "Highway AVX3_ZEN4", the target chosen for this CPU, or
/// "scalar".
std::string layer_kernel_name(LayerImpl impl);

}  // namespace quern::smoke
