#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model_smoke/json_file.h"
#include "model_smoke/safetensors.h"

namespace quern::smoke {

/// What a checkpoint says of its key/value cache.
enum class KvAlgorithm : uint8_t {
  kNone,   ///< nothing, or null: scales have no place
  kFp8,    ///< FP8, FLOAT8, or 8-bit floating point: the cache is e4m3
  kOther,  ///< "auto", or something unknown: scales count where both are there
};
/// A name ("FP8", in any case) or a scheme ({type: float, num_bits: 8}).
KvAlgorithm read_kv_algorithm(const JsonNode& node);

/// What --kv-cache asks for. kBF16 is the type of the activations.
enum class KvCacheChoice : uint8_t { kAuto, kBF16, kFp8 };

/// Of one attention layer: byte = e4m3(x / scale).
struct KvScales {
  static constexpr float kAbsent = -1.0f;
  float k = kAbsent;
  float v = kAbsent;

  bool operator==(const KvScales&) const = default;
};
/// Finite and positive.
bool is_kv_scale(float x) noexcept;

/// What the files hold for one attention layer, whatever the values. A name is that of the tensor,
/// as the file has it; empty: there is none, and the value is kAbsent.
struct LoadedKvScales {
  KvScales value;
  std::string k_name, v_name;

  bool both_usable() const noexcept { return is_kv_scale(value.k) && is_kv_scale(value.v); }
};

/// A tensor that is the scale of an attention layer's keys or values.
struct KvScaleName {
  std::string attention;  ///< "model.layers.3.self_attn"
  bool is_key = false;
};
/// "X.self_attn.k_proj.k_scale" and "X.self_attn.v_proj.v_scale", or the same without the
/// projection; none for every other name. Asked before projections are joined, so that the scales
/// of the parts do not get lost (models.md 6).
std::optional<KvScaleName> kv_scale_name(std::string_view tensor);

/// F32, BF16 or F16 of shape [] or [1]; throws InputError otherwise. The value may be anything.
float per_tensor_kv_scale(const TensorView& tensor);

/// The scales of all layers: absent until they are loaded, and not there at all with kNone.
class KvScaleSlots {
 public:
  KvScaleSlots(KvAlgorithm algorithm, size_t layers)
      : slots_(algorithm == KvAlgorithm::kNone ? 0 : layers) {}

  bool exist() const noexcept { return !slots_.empty(); }
  const LoadedKvScales& at(size_t layer) const { return slots_.at(layer); }
  void load(size_t layer, bool is_key, float value, const std::string& tensor) {
    LoadedKvScales& slot = slots_.at(layer);
    (is_key ? slot.value.k : slot.value.v) = value;
    (is_key ? slot.k_name : slot.v_name) = tensor;
  }

 private:
  std::vector<LoadedKvScales> slots_;
};

/// A warning for each number that is no scale (0, negative, NaN, infinite), which counts as absent.
std::vector<std::string> unusable_kv_scales(const LoadedKvScales& loaded, const std::string& file);

/// What a layer with an FP8 cache computes with. Neither scale: 1 and 1. K alone serves both; V
/// alone is an InputError.
KvScales settled_kv_scales(const LoadedKvScales& loaded, const std::string& file);

}  // namespace quern::smoke
