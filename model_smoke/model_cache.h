#pragma once

#include <cstdint>
#include <vector>

#include "model_smoke/layers/attention.h"
#include "model_smoke/layers/conv1d.h"
#include "model_smoke/layers/delta_rule.h"

namespace quern::smoke {

/// What one layer remembers of the tokens so far: keys and values (full attention), or the inputs
/// the convolution still needs and the delta rule's state (linear attention).
struct LayerCache {
  KvCache kv;
  ConvState conv;
  DeltaState delta;
};

/// The past of one sequence. Made by the model, in the model's activation type.
struct ModelCache {
  int64_t length = 0;  ///< tokens so far
  std::vector<LayerCache> layers;

  /// Forgets everything, keeps the memory.
  void reset() {
    length = 0;
    for (LayerCache& layer : layers) {
      layer.kv.reset();
      layer.conv.reset();
      layer.delta.reset();
    }
  }
};

}  // namespace quern::smoke
