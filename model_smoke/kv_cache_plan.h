#pragma once

#include <string>
#include <vector>

#include "model_smoke/checkpoint.h"
#include "model_smoke/kv_scales.h"
#include "model_smoke/model_config.h"
#include "model_smoke/quant_config.h"

namespace quern::smoke {

/// What the key/value cache of a model holds.
struct KvCachePlan {
  bool fp8 = false;                ///< e4m3; else the type of the activations
  std::vector<KvScales> layer;     ///< where fp8: of every layer, attention or not
  std::string reason;              ///< "FP8: config.json declares it"
  std::vector<std::string> taken;  ///< the tensors of those scales
};

/// Decides by the choice, what the config declares and the scales that the files hold. Takes those
/// scales, or ignores them for a reason; what belongs to no attention layer, and what is no scale,
/// is a warning. Throws InputError for scales that are not one number, and for V without K where
/// the cache is FP8.
KvCachePlan plan_kv_cache(const QuantConfig& quant, const ModelConfig& config,
                          const std::string& prefix, KvCacheChoice choice, Checkpoint& checkpoint);

}  // namespace quern::smoke
