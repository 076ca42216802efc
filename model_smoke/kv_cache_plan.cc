#include "model_smoke/kv_cache_plan.h"

#include <map>
#include <utility>

#include "model_smoke/input_error.h"

namespace quern::smoke {
namespace {

/// The attention layers by name: "model.layers.3.self_attn" -> 3.
std::map<std::string, size_t> attention_layers(const ModelConfig& config,
                                               const std::string& prefix) {
  std::map<std::string, size_t> layers;
  for (size_t i = 0; i < config.layer_types.size(); ++i) {
    if (config.layer_types[i] != LayerType::kFullAttention) continue;
    layers[prefix + "layers." + std::to_string(i) + ".self_attn"] = i;
  }
  return layers;
}

/// Fills the slots; the names of the tensors that did.
std::vector<std::string> load_slots(const std::map<std::string, size_t>& layers,
                                    const std::string& config, Checkpoint& checkpoint,
                                    KvScaleSlots& slots) {
  std::vector<std::string> loaded;
  std::map<std::pair<size_t, bool>, std::string> seen;
  for (const std::string& name : checkpoint.unconsumed()) {
    const std::optional<KvScaleName> scale = kv_scale_name(name);
    if (!scale) continue;
    const auto layer = layers.find(scale->attention);
    if (layer == layers.end()) {
      checkpoint.ignore(name, "a KV cache scale of no attention layer");
      checkpoint.warn(checkpoint.source() + ": " + name + ": " + scale->attention +
                      " is no attention layer of this model; its KV cache scale is ignored");
      continue;
    }
    if (!slots.exist()) {
      checkpoint.ignore(name, config.empty()
                                  ? "a KV cache scale, and no config declares such a cache"
                                  : "a KV cache scale, and " + config + " declares no such cache");
      continue;
    }
    const auto [first, is_new] = seen.try_emplace({layer->second, scale->is_key}, name);
    if (!is_new) {
      throw InputError(checkpoint.source(), name, "one scale",
                       "a second one, beside " + first->second);
    }
    slots.load(layer->second, scale->is_key, per_tensor_kv_scale(*checkpoint.find(name)), name);
    loaded.push_back(name);
  }
  return loaded;
}

}  // namespace

KvCachePlan plan_kv_cache(const QuantConfig& quant, const ModelConfig& config,
                          const std::string& prefix, KvCacheChoice choice, Checkpoint& checkpoint) {
  const std::map<std::string, size_t> layers = attention_layers(config, prefix);
  KvScaleSlots slots(quant.kv_algorithm(), config.layer_types.size());
  const std::vector<std::string> loaded = load_slots(layers, quant.file_name(), checkpoint, slots);

  KvCachePlan plan;
  plan.layer.assign(config.layer_types.size(), {1.0f, 1.0f});
  bool all_loaded = slots.exist() && !layers.empty();
  for (const auto& [attention, layer] : layers) {
    if (!slots.exist()) break;
    all_loaded = all_loaded && slots.at(layer).both_usable();
    for (std::string& text : unusable_kv_scales(slots.at(layer), checkpoint.source())) {
      checkpoint.warn(std::move(text));
    }
  }

  if (choice != KvCacheChoice::kAuto) {
    plan.fp8 = choice == KvCacheChoice::kFp8;
    plan.reason = std::string(plan.fp8 ? "FP8" : "as the activations") + ": asked for";
  } else if (quant.kv_algorithm() == KvAlgorithm::kFp8) {
    plan.fp8 = true;
    plan.reason = "FP8: " + quant.file_name() + " declares it";
  } else if (quant.kv_algorithm() == KvAlgorithm::kOther && all_loaded) {
    plan.fp8 = true;
    plan.reason =
        "FP8: " + quant.file_name() + " names an algorithm and every layer has both scales";
  } else {
    plan.reason = "as the activations: nothing declares another";
  }
  // Scales that nothing reads cannot contradict each other: V alone is one for an FP8 cache only.
  for (const auto& [attention, layer] : layers) {
    if (!plan.fp8 || !slots.exist()) break;
    plan.layer[layer] = settled_kv_scales(slots.at(layer), checkpoint.source());
  }
  for (const std::string& name : loaded) {
    if (!is_kv_scale(per_tensor_kv_scale(*checkpoint.find(name)))) {
      checkpoint.ignore(name, "a KV cache scale that is no finite positive number");
    } else if (!plan.fp8) {
      checkpoint.ignore(name, "a KV cache scale: the cache is not FP8");
    } else {
      (void)checkpoint.get(name);
      plan.taken.push_back(name);
    }
  }
  return plan;
}

}  // namespace quern::smoke
