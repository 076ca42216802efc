// How one module is stored: what the files hold, held against what the lists say.
#include <initializer_list>
#include <vector>

#include "model_smoke/input_error.h"
#include "model_smoke/quant_config.h"

namespace quern::smoke {
namespace {

constexpr char kFormats[] = "a plain weight, or I8 with weight_scale";

const TensorView* find_in(const Checkpoint& c, std::string_view module, const char* suffix) {
  return c.find(std::string(module) + suffix);
}

// Tensors of formats this build does not compute. A weight beside one of them has two readings
// (loading-rules.md A8), so neither is taken.
void refuse_other_formats(const Checkpoint& c, std::string_view module) {
  for (const char* suffix : {".qweight", ".weight_packed", ".weight_scale_inv", ".weight_scale_2",
                             ".weight_zero_point", ".g_idx"}) {
    const TensorView* other = find_in(c, module, suffix);
    if (other == nullptr) continue;
    const bool both = find_in(c, module, ".weight") != nullptr;
    throw InputError(other->file, other->name, kFormats,
                     "a tensor of another format" +
                         (both ? " beside " + std::string(module) + ".weight" : std::string()));
  }
}

const TensorView& require_weight(const Checkpoint& c, std::string_view module) {
  const TensorView* weight = find_in(c, module, ".weight");
  const std::string name = std::string(module) + ".weight";
  if (weight == nullptr) {
    throw InputError(c.source(), name, "a tensor of this name", "none",
                     "is the download complete?");
  }
  if (weight->shape.size() != 2 || weight->elements() == 0) {
    throw InputError(weight->file, name, "a matrix [N, K] that is not empty", describe(*weight));
  }
  return *weight;
}

void check_scale(const TensorView& weight, const TensorView& scale) {
  const int64_t rows = weight.shape[0];
  const auto& s = scale.shape;
  const bool shape_ok =
      (s.size() == 1 && s[0] == rows) || (s.size() == 2 && s[0] == rows && s[1] == 1);
  if (!shape_ok || (scale.dtype != FileDType::kF32 && scale.dtype != FileDType::kBF16)) {
    const std::string n = std::to_string(rows);
    throw InputError(
        scale.file, scale.name,
        "F32 or BF16 [" + n + ", 1] or [" + n + "], one scale per row of " + weight.name,
        describe(scale));
  }
  const std::vector<float> values = to_f32(scale);
  for (size_t i = 0; i < values.size(); ++i) {
    // Zero is legal (a row of zeros). NaN and infinity are found when the tensor is taken.
    if (values[i] < 0.0f) {
      throw InputError(
          scale.file, scale.name, "scales that are not negative",
          value_text(scale, static_cast<int64_t>(i)) + " at index " + std::to_string(i));
    }
  }
}

bool is_plain_float(FileDType t) {
  return t == FileDType::kBF16 || t == FileDType::kF16 || t == FileDType::kF32;
}

}  // namespace

bool QuantConfig::lists_quantize(std::string_view module) const {
  return targets_.find(module) != nullptr && ignore_.find(module) == nullptr;
}

std::string QuantConfig::verdict_text(std::string_view module) const {
  if (method_ == QuantMethod::kNone) return "no quantization_config";
  if (const ModulePattern* p = ignore_.find(module))
    return "the ignore entry \"" + p->text() + "\"";
  if (const ModulePattern* p = targets_.find(module)) {
    return "the target \"" + p->text() + "\" and no ignore entry for it";
  }
  return "no target that names it";
}

ModuleFormat QuantConfig::format_of(std::string_view module, const Checkpoint& checkpoint) const {
  refuse_other_formats(checkpoint, module);
  const TensorView& weight = require_weight(checkpoint, module);
  const TensorView* scale = find_in(checkpoint, module, ".weight_scale");
  const auto because = [&] { return ", because " + file_ + " has " + verdict_text(module); };
  if (weight.dtype == FileDType::kI8) {
    if (scale == nullptr) {
      throw InputError(weight.file, std::string(module) + ".weight_scale",
                       "a scale for " + weight.name + " " + describe(weight), "none");
    }
    if (!lists_quantize(module)) {
      throw InputError(weight.file, weight.name, "a plain weight" + because(),
                       describe(weight) + " with " + scale->name);
    }
    check_scale(weight, *scale);
    return ModuleFormat::kInt8;
  }
  if (!is_plain_float(weight.dtype)) {
    throw InputError(weight.file, weight.name, "dtype BF16, F16, F32 or I8", describe(weight));
  }
  if (scale != nullptr) {
    throw InputError(scale->file, scale->name,
                     "no scale beside " + weight.name + " " + describe(weight), describe(*scale));
  }
  // w8a8_int8 never quantizes the output layer, and its writers need not list it.
  const bool implied = method_ == QuantMethod::kW8A8Int8 && module == "lm_head";
  if (lists_quantize(module) && !implied) {
    throw InputError(weight.file, weight.name, "I8 with a weight_scale" + because(),
                     describe(weight), "add the module to ignore if it is meant to be plain");
  }
  return ModuleFormat::kPlain;
}

}  // namespace quern::smoke
