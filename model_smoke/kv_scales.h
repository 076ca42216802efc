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

  bool both() const noexcept { return k > 0 && v > 0; }
  bool operator==(const KvScales&) const = default;
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
  const KvScales& at(size_t layer) const { return slots_.at(layer); }
  void load(size_t layer, bool is_key, float value) {
    (is_key ? slots_.at(layer).k : slots_.at(layer).v) = value;
  }

 private:
  std::vector<KvScales> slots_;
};

/// What a layer computes with. Numbers that are no scale (0, negative, NaN, infinite) count as
/// absent and are put into `reports`. Neither: 1 and 1. K alone serves both; V alone is an
/// InputError.
KvScales settled_kv_scales(const KvScales& loaded, const std::string& attention,
                           const std::string& file, std::vector<std::string>* reports);

}  // namespace quern::smoke
