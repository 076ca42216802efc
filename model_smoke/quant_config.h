#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model_smoke/checkpoint.h"
#include "model_smoke/json_file.h"
#include "model_smoke/model_dir.h"

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

/// An entry of `ignore` or `targets`: an exact name or a module above it, a glob (`*` crosses dots;
/// the whole name or one dotted part), `re:` a regular expression matched from the start, or the
/// class name "Linear".
class ModulePattern {
 public:
  ModulePattern(std::string text, const std::string& file, const std::string& key);
  ~ModulePattern();
  ModulePattern(ModulePattern&&) noexcept;
  ModulePattern& operator=(ModulePattern&&) noexcept;
  const std::string& text() const noexcept { return text_; }
  /// The names a module has: as in the file, and without "language_model.".
  bool matches(std::string_view module) const;

 private:
  struct Regex;
  bool matches_one(std::string_view name) const;
  std::string text_;
  std::unique_ptr<Regex> regex_;
};

/// The quantization_config of config.json.
class QuantConfig {
 public:
  static QuantConfig load(const ModelDir& dir);
  static QuantConfig parse(const Json& config, const std::string& file);

  QuantMethod method() const noexcept { return method_; }
  bool is_ignored(std::string_view module) const { return ignore_entry(module) != nullptr; }

  /// How linear module `module` ("model.layers.0.mlp.up_proj") is stored: by what the files hold
  /// and by the lists, which must agree; a contradiction is an InputError naming both. Checks
  /// dtypes and shapes of weight and scale, takes nothing. A missing weight is an InputError.
  ModuleFormat format_of(std::string_view module, const Checkpoint& checkpoint) const;

  /// `ignore` entries that match no module of the checkpoint (bug log L02), as warnings.
  std::vector<std::string> unmatched_entries(const Checkpoint& checkpoint) const;

 private:
  const ModulePattern* ignore_entry(std::string_view module) const;
  const ModulePattern* target_entry(std::string_view module) const;

  std::string file_;
  QuantMethod method_ = QuantMethod::kNone;
  std::vector<ModulePattern> ignore_;
  std::vector<ModulePattern> targets_;
};

}  // namespace quern::smoke
