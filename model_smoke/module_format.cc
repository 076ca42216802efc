// How one module is stored: what the files hold, held against what the lists say.
#include <algorithm>
#include <initializer_list>
#include <vector>

#include "model_smoke/float_module.h"
#include "model_smoke/input_error.h"
#include "model_smoke/int4_module.h"
#include "model_smoke/quant_config.h"

namespace quern::smoke {
namespace {

constexpr char kFormats[] = "a plain weight, or I8 with weight_scale";
constexpr char kInt4Formats[] = "a plain weight, or int4 as the config has it";
constexpr char kFloatFormats[] = "a plain weight, or codes with scales as the config has them";

const TensorView* find_in(const Checkpoint& c, std::string_view module, std::string_view suffix) {
  return c.find(std::string(module) + std::string(suffix));
}

/// What holds the numbers of a module.
constexpr const char* kCodesSuffixes[] = {".weight", ".qweight", ".weight_packed"};

/// Every tensor that some format has beside or in place of `weight`.
constexpr const char* kQuantSuffixes[] = {
    ".qweight",           ".qzeros",         ".scales",           ".g_idx",
    ".weight_packed",     ".weight_g_idx",   ".weight_shape",     ".weight_scale",
    ".weight_zero_point", ".weight_scale_2", ".weight_scale_inv", ".weight_global_scale",
    ".pre_quant_scale"};

// Tensors of formats that the config does not have. A weight beside one of them has two readings
// (loading-rules.md A8), so neither is taken. `own`: those of the config's format; null: none.
void refuse_other_formats(const Checkpoint& c, std::string_view module,
                          std::initializer_list<const char*> own, const std::string& formats) {
  for (const std::string_view suffix : kQuantSuffixes) {
    const TensorView* other = find_in(c, module, suffix);
    const bool is_own = std::any_of(own.begin(), own.end(), [suffix](const char* name) {
      return name != nullptr && suffix == name;
    });
    if (other == nullptr || is_own) continue;
    std::string beside;
    for (const char* codes : kCodesSuffixes) {
      const TensorView* there = find_in(c, module, codes);
      if (there != nullptr && there != other) beside += " beside " + there->name;
    }
    throw InputError(other->file, other->name, formats, "a tensor of another format" + beside);
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

bool QuantConfig::is_target(std::string_view module) const {
  if (method_ == QuantMethod::kModelOptMixed) return modelopt_scheme_of(module) != nullptr;
  return targets_.find(module) != nullptr;
}

bool QuantConfig::lists_quantize(std::string_view module) const {
  return is_target(module) && excluded_by(module) == nullptr;
}

std::string QuantConfig::verdict_text(std::string_view module) const {
  if (method_ == QuantMethod::kNone) {
    return present_ ? at_ + ".quant_algo at null" : "no quantization_config";
  }
  if (const std::string* entry = excluded_by(module)) {
    const std::string list = method_ == QuantMethod::kGptq  ? "dynamic rule"
                             : method_ == QuantMethod::kAwq ? "modules_to_not_convert entry"
                                                            : std::string(ignore_key_) + " entry";
    return "the " + list + " \"" + printable(*entry) + "\"";
  }
  if (method_ == QuantMethod::kModelOptMixed) {
    std::string entry;
    const ModelOptScheme* scheme = modelopt_scheme_of(module, &entry);
    if (scheme == nullptr) return "no quantized_layers entry for it";
    return "the quantized_layers entry \"" + printable(entry) + "\", " + scheme->algorithm;
  }
  if (const ModulePattern* p = targets_.find(module)) {
    return "the target \"" + p->text() + "\" and no " + ignore_key_ + " entry for it";
  }
  return "no target that names it";
}

// GPTQ and AWQ leave modules out that no list names: their `weight` is the one reading there is.
// compressed-tensors names every module that is not quantized.
ModuleFormat QuantConfig::int4_format_of(std::string_view module,
                                         const Checkpoint& checkpoint) const {
  const Int4Names names = int4_names(
      method_ == QuantMethod::kCompressedTensorsInt4 ? Int4Storage::kRowMajor : Int4Storage::kGptq);
  refuse_other_formats(checkpoint, module,
                       {names.codes, names.scale, names.zero, names.g_idx, names.shape},
                       kInt4Formats);
  const TensorView* weight = find_in(checkpoint, module, ".weight");
  const TensorView* codes = find_in(checkpoint, module, names.codes);
  for (const char* suffix : {names.codes, names.scale, names.zero, names.g_idx}) {
    const TensorView* part = find_in(checkpoint, module, suffix);
    if (part == nullptr) continue;
    if (weight != nullptr) {
      throw InputError(part->file, part->name, kInt4Formats,
                       describe(*part) + " beside " + weight->name + " " + describe(*weight),
                       "one reading of two would be a guess");
    }
    if (codes == nullptr) {
      throw InputError(part->file, std::string(module) + names.codes,
                       "the codes that belong to " + part->name, "none");
    }
  }
  const auto because = [&] { return ", because " + file_ + " has " + verdict_text(module); };
  if (codes != nullptr) {
    if (lists_quantize(module)) return ModuleFormat::kInt4;
    throw InputError(codes->file, codes->name, "a plain weight" + because(), describe(*codes));
  }
  const TensorView& plain = require_weight(checkpoint, module);
  if (!is_plain_float(plain.dtype)) {
    throw InputError(plain.file, plain.name, "dtype BF16, F16 or F32", describe(plain));
  }
  if (method_ == QuantMethod::kCompressedTensorsInt4 && lists_quantize(module)) {
    throw InputError(plain.file, plain.name, "int4 codes" + because(), describe(plain),
                     "add the module to ignore if it is meant to be plain");
  }
  return ModuleFormat::kPlain;
}

// The writers of fp8 and ModelOpt files leave modules out that no list names (routers, gates, in
// DeepSeek's files every module that is not quantized): a plain `weight` has one reading.
// compressed-tensors names every module that is not quantized, MIXED_PRECISION every one that is.
ModuleFormat QuantConfig::float_format_of(std::string_view module,
                                          const Checkpoint& checkpoint) const {
  const QuantMethod method = method_of(module);
  const FloatNames names = float_names(*this, module, checkpoint);
  const auto because = [&] { return ", because " + file_ + " has " + verdict_text(module); };
  const TensorView* factors = find_in(checkpoint, module, ".pre_quant_scale");
  if (factors != nullptr && is_modelopt(method) && names.pre_quant_scale == nullptr) {
    const std::string& algorithm = modelopt_scheme_of(module)->algorithm;
    throw InputError(factors->file, factors->name,
                     "quant_algo NVFP4_AWQ of a module whose input has factors",
                     algorithm + (algorithm == "NVFP4_AWQ" ? " with pre_quant_scale false" : "") +
                         " in " + file_);
  }
  refuse_other_formats(checkpoint, module,
                       {names.codes, names.scale, names.global, names.pre_quant_scale},
                       method_ == QuantMethod::kModelOptMixed ? kFloatFormats + because()
                                                              : std::string(kFloatFormats));
  const bool packed = std::string_view(names.codes) != ".weight";
  const TensorView* weight = find_in(checkpoint, module, ".weight");
  const TensorView* codes = packed ? find_in(checkpoint, module, names.codes) : weight;
  if (packed && codes != nullptr && weight != nullptr) {
    throw InputError(codes->file, codes->name, kFloatFormats,
                     describe(*codes) + " beside " + weight->name + " " + describe(*weight),
                     "one reading of two would be a guess");
  }
  const char* const coded = is_fp8(method) ? "F8_E4M3" : is_fp4(method) ? "U8" : nullptr;
  if (codes != nullptr && coded != nullptr && to_string(codes->dtype) == std::string(coded)) {
    for (const char* suffix : {names.scale, names.global}) {
      if (suffix == nullptr || find_in(checkpoint, module, suffix) != nullptr) continue;
      throw InputError(codes->file, std::string(module) + suffix,
                       "a scale for " + codes->name + " " + describe(*codes), "none");
    }
    if (!lists_quantize(module)) {
      throw InputError(codes->file, codes->name, "a plain weight" + because(),
                       describe(*codes) + " with " + std::string(module) + names.scale);
    }
    if (codes->shape.size() != 2 || codes->elements() == 0) {
      throw InputError(codes->file, codes->name, "a matrix that is not empty", describe(*codes));
    }
    return is_fp8(method) ? ModuleFormat::kFp8 : ModuleFormat::kFp4;
  }
  for (const char* suffix : {names.scale, names.global, names.pre_quant_scale}) {
    const TensorView* part = suffix != nullptr ? find_in(checkpoint, module, suffix) : nullptr;
    if (part == nullptr) continue;
    if (weight == nullptr) {
      throw InputError(part->file, std::string(module) + names.codes,
                       "the codes that belong to " + part->name, "none");
    }
    throw InputError(part->file, part->name,
                     "no scale beside " + weight->name + " " + describe(*weight), describe(*part));
  }
  const TensorView& plain = require_weight(checkpoint, module);
  if (!is_plain_float(plain.dtype)) {
    throw InputError(plain.file, plain.name,
                     coded != nullptr ? std::string("dtype BF16, F16, F32 or ") + coded
                                      : "dtype BF16, F16 or F32" + because(),
                     describe(plain));
  }
  const bool lists_codes = method_ == QuantMethod::kModelOptMixed;
  const bool names_all = lists_codes || method_ == QuantMethod::kCompressedTensorsFp8 ||
                         method_ == QuantMethod::kCompressedTensorsNvfp4;
  if (names_all && lists_quantize(module)) {
    throw InputError(plain.file, plain.name, "codes with scales" + because(), describe(plain),
                     lists_codes ? "take the entry out if the module is meant to be plain"
                                 : "add the module to ignore if it is meant to be plain");
  }
  return ModuleFormat::kPlain;
}

ModuleDecision QuantConfig::decide(std::string_view module, const Checkpoint& checkpoint) const {
  ModuleDecision out;
  out.format = format_of(module, checkpoint);
  for (const char* suffix : kCodesSuffixes) {
    const TensorView* t = find_in(checkpoint, module, suffix);
    if (t == nullptr) continue;
    out.reason = std::string(out.format == ModuleFormat::kPlain ? "plain" : "quantized") + ": " +
                 (suffix + 1) + " is " + to_string(t->dtype) + "; " + file_name() + " has " +
                 verdict_text(module);
  }
  if (out.format == ModuleFormat::kFp4 && pre_quant_scale_of(module)) {
    const bool has = find_in(checkpoint, module, ".pre_quant_scale") != nullptr;
    out.reason += has ? "; pre_quant_scale multiplies its input"
                      : "; no pre_quant_scale, so its writer folded it into what comes before";
  }
  return out;
}

ModuleFormat QuantConfig::format_of(std::string_view module, const Checkpoint& checkpoint) const {
  if (is_int4(method_)) return int4_format_of(module, checkpoint);
  if (is_fp8(method_) || is_fp4(method_) || method_ == QuantMethod::kModelOptMixed) {
    return float_format_of(module, checkpoint);
  }
  refuse_other_formats(checkpoint, module, {".weight_scale"}, kFormats);
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
