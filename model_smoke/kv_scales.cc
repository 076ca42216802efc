#include "model_smoke/kv_scales.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"
#include "model_smoke/tensor_values.h"

namespace quern::smoke {
namespace {

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  return text;
}

}  // namespace

bool is_kv_scale(float x) noexcept {
  return std::isfinite(x) && x > 0;
}

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
    throw InputError(tensor.file, tensor.name, "shape [] or [1]", describe(tensor),
                     "per-tensor KV scale expected");
  }
  return to_f32(tensor).front();
}

std::vector<std::string> unusable_kv_scales(const LoadedKvScales& loaded, const std::string& file) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& name, float value) {
    if (name.empty() || is_kv_scale(value)) return;
    out.push_back(
        fmt::format("{}: {}: {:g} is no scale and counts as absent", file, printable(name), value));
  };
  add(loaded.k_name, loaded.value.k);
  add(loaded.v_name, loaded.value.v);
  return out;
}

KvScales settled_kv_scales(const LoadedKvScales& loaded, const std::string& file) {
  const auto& [k, v] = loaded.value;
  if (is_kv_scale(k)) return {k, is_kv_scale(v) ? v : k};
  if (is_kv_scale(v)) {
    throw InputError(
        file, loaded.v_name, "a K scale beside the V scale",
        loaded.k_name.empty() ? "none" : fmt::format("{}, which is {:g}", loaded.k_name, k),
        "the scale of values alone says nothing of keys; --kv-cache bf16 uses neither");
  }
  return {1.0f, 1.0f};
}

}  // namespace quern::smoke
