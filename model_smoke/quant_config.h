#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model_smoke/checkpoint.h"
#include "model_smoke/json_file.h"
#include "model_smoke/model_dir.h"
#include "model_smoke/module_pattern.h"

namespace quern::smoke {

enum class QuantMethod : uint8_t {
  kNone,
  kW8A8Int8,               ///< quant_method "w8a8_int8"
  kCompressedTensorsInt8,  ///< quant_method "compressed-tensors", format "int-quantized"
};
const char* to_string(QuantMethod method) noexcept;

/// How one linear module is stored.
enum class ModuleFormat : uint8_t {
  kPlain,  ///< `weight` BF16, F16 or F32
  kInt8,   ///< `weight` I8 [N,K] and `weight_scale` F32 or BF16, [N,1] or [N]
};

/// The quantization_config of config.json.
class QuantConfig {
 public:
  static QuantConfig load(const ModelDir& dir);
  static QuantConfig parse(const Json& config, const std::string& file);

  QuantMethod method() const noexcept { return method_; }
  bool is_ignored(std::string_view module) const { return ignore_.find(module) != nullptr; }

  /// How linear module `module` ("model.layers.0.mlp.up_proj") is stored: by what the files hold
  /// and by the lists, which must agree; a contradiction is an InputError naming both. Checks
  /// dtypes and shapes of weight and scale, takes nothing. A missing weight is an InputError.
  ModuleFormat format_of(std::string_view module, const Checkpoint& checkpoint) const;

  /// `ignore` entries that match no module of the checkpoint (bug log L02), as warnings.
  std::vector<std::string> unmatched_entries(const Checkpoint& checkpoint) const;

 private:
  /// What the lists say of a module, for messages.
  std::string verdict_text(std::string_view module) const;
  bool lists_quantize(std::string_view module) const;

  std::string file_;
  QuantMethod method_ = QuantMethod::kNone;
  ModuleList ignore_;
  ModuleList targets_;
};

}  // namespace quern::smoke
