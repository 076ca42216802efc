#include "model_smoke/kv_scales.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"
#include "model_smoke/tensor_values.h"

namespace quern::smoke {
namespace {

bool is_scale(float x) {
  return std::isfinite(x) && x > 0;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  return text;
}

}  // namespace

KvAlgorithm read_kv_algorithm(const JsonNode& node) {
  if (node.value().is_string()) {
    const std::string name = upper(node.as_string());
    return name == "FP8" || name == "FLOAT8" ? KvAlgorithm::kFp8 : KvAlgorithm::kOther;
  }
  if (!node.value().is_object()) node.fail("the name of an algorithm, or a scheme");
  if (node.bool_or("dynamic", false)) node.at("dynamic").fail("false: scales of the file");
  if (node.string_or("strategy", "tensor") != "tensor") node.at("strategy").fail("tensor");
  if (!node.bool_or("symmetric", true)) node.at("symmetric").fail("true");
  const bool is_float = node.string_or("type", "int") == "float";
  return is_float && node.int_or("num_bits", 0, 1, 64) == 8 ? KvAlgorithm::kFp8
                                                            : KvAlgorithm::kOther;
}

std::optional<KvScaleName> kv_scale_name(std::string_view tensor) {
  constexpr std::string_view kAttention = "self_attn";
  for (const bool is_key : {true, false}) {
    for (const std::string_view suffix :
         {std::string_view(is_key ? ".k_proj.k_scale" : ".v_proj.v_scale"),
          std::string_view(is_key ? ".k_scale" : ".v_scale")}) {
      if (!tensor.ends_with(suffix)) continue;
      const std::string_view attention = tensor.substr(0, tensor.size() - suffix.size());
      const bool whole_part =
          attention == kAttention || attention.ends_with("." + std::string(kAttention));
      if (whole_part) return KvScaleName{std::string(attention), is_key};
    }
  }
  return std::nullopt;
}

float per_tensor_kv_scale(const TensorView& tensor) {
  const bool one = tensor.shape.empty() || (tensor.shape.size() == 1 && tensor.shape[0] == 1);
  if (!one) {
    throw InputError(tensor.file, tensor.name, "per-tensor KV scale expected: shape [] or [1]",
                     describe(tensor));
  }
  return to_f32(tensor).front();
}

KvScales settled_kv_scales(const KvScales& loaded, const std::string& attention,
                           const std::string& file, std::vector<std::string>* reports) {
  KvScales found;
  const auto settle = [&](float value, const char* name, float* to) {
    if (is_scale(value)) *to = value;
    if (is_scale(value) || value == KvScales::kAbsent) return;
    reports->push_back(file + ": " + attention + "." + name + ": " + std::to_string(value) +
                       " is no scale and counts as absent");
  };
  settle(loaded.k, "k_scale", &found.k);
  settle(loaded.v, "v_scale", &found.v);
  if (found.both()) return found;
  if (found.k > 0) return {found.k, found.k};
  if (found.v > 0) {
    throw InputError(file, attention + ".k_scale", "a K scale beside the V scale", "none",
                     "the scale of values alone says nothing of keys");
  }
  return {1.0f, 1.0f};
}

}  // namespace quern::smoke
