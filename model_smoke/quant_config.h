#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model_smoke/checkpoint.h"
#include "model_smoke/json_file.h"
#include "model_smoke/kv_scales.h"
#include "model_smoke/model_dir.h"
#include "model_smoke/module_pattern.h"
#include "model_smoke/quant_method.h"
#include "quern/int4_weights.h"

namespace quern::smoke {

/// How one linear module is stored.
enum class ModuleFormat : uint8_t {
  kPlain,  ///< `weight` BF16, F16 or F32
  kInt8,   ///< `weight` I8 [N,K] and `weight_scale` F32 or BF16, [N,1] or [N]
  kInt4,   ///< packed nibbles with scales, and perhaps zeros and the groups of K: int4_module.h
  kFp8,    ///< `weight` F8_E4M3 with scales of blocks, rows or the matrix: float_module.h
  kFp4,    ///< NVFP4: e2m1 nibbles, e4m3 scales and one for the matrix: float_module.h
};

/// The format of a module, and why.
struct ModuleDecision {
  ModuleFormat format = ModuleFormat::kPlain;
  std::string reason;  ///< what the files hold, and what the lists say
};

/// What the config says of a module's int4 weights.
struct Int4Scheme {
  Int4Storage storage = Int4Storage::kGptq;
  int64_t group = 128;     ///< columns of K that share a scale; -1: all of them
  bool symmetric = true;   ///< the zero is 8, whatever is stored beside
  bool act_order = false;  ///< the groups of K must be there
  int32_t zero_offset = 0;
  bool operator==(const Int4Scheme&) const = default;
};

/// Columns of K that share an e4m3 scale of NVFP4.
inline constexpr int64_t kNvfp4Block = 16;

/// How many scales e4m3 weights have.
struct Fp8Scheme {
  enum class Scales : uint8_t { kBlock, kTensor, kChannel, kTensorOrChannel };
  Scales scales = Scales::kTensorOrChannel;
  int64_t block_n = 0, block_k = 0;  ///< kBlock
  bool operator==(const Fp8Scheme&) const = default;
};

/// What ModelOpt's quant_algo says of a module, or of all.
struct ModelOptScheme {
  std::string algorithm;                    ///< as the file has it
  QuantMethod method = QuantMethod::kNone;  ///< kModelOptFp8 or kModelOptNvfp4
  Fp8Scheme fp8;
  bool pre_quant_scale = false;  ///< the input may have a factor for each column of K (AWQ)
  bool operator==(const ModelOptScheme&) const = default;
};

/// The quantization_config of config.json, and ModelOpt's hf_quant_config.json.
class QuantConfig {
 public:
  static QuantConfig load(const ModelDir& dir);
  static QuantConfig parse(const Json& config, const std::string& file);
  /// hf_quant_config.json.
  static QuantConfig parse_nested(const Json& json, const std::string& file);

  QuantMethod method() const noexcept { return method_; }
  /// That of one module: with kModelOptMixed each has its own, and kNone is none.
  QuantMethod method_of(std::string_view module) const;
  const std::string& file() const noexcept { return file_; }
  /// Without its directory.
  std::string file_name() const { return file_.substr(file_.rfind('/') + 1); }
  /// Throws InputError where the config has nothing that this build computes for the module.
  Int4Scheme int4_scheme_of(std::string_view module) const;
  Fp8Scheme fp8_scheme_of(std::string_view module) const;
  /// Whether its input may have a `pre_quant_scale`.
  bool pre_quant_scale_of(std::string_view module) const;
  KvAlgorithm kv_algorithm() const noexcept { return kv_; }

  /// How linear module `module` ("model.layers.0.mlp.up_proj") is stored: by what the files hold
  /// and by the lists, which must agree; a contradiction is an InputError naming both. Checks
  /// dtypes and shapes of weight and scale, takes nothing. A missing weight is an InputError.
  ModuleFormat format_of(std::string_view module, const Checkpoint& checkpoint) const;
  ModuleDecision decide(std::string_view module, const Checkpoint& checkpoint) const;

  /// The entry that leaves a module out: of `ignore`, `modules_to_not_convert` or `dynamic`; null
  /// where none does. A list may say it of the name that engines join the module under
  /// ("a.qkv_proj" of "a.k_proj"). A joined module is left out where all of its shards are; where
  /// only some are, InputError: one tensor has one format.
  const std::string* excluded_by(std::string_view module) const;

  /// Entries of lists and rules that match no module of the checkpoint (bug log L02), as warnings.
  std::vector<std::string> unmatched_entries(const Checkpoint& checkpoint) const;

 private:
  /// What the lists say of a module, for messages.
  std::string verdict_text(std::string_view module) const;
  bool is_target(std::string_view module) const;
  bool lists_quantize(std::string_view module) const;
  ModuleFormat int4_format_of(std::string_view module, const Checkpoint& checkpoint) const;
  ModuleFormat float_format_of(std::string_view module, const Checkpoint& checkpoint) const;

  /// GPTQModel's `dynamic`: a Python expression from the start of the name, and what it changes.
  struct Rule {
    ModulePattern pattern;
    std::string text;  ///< as in the file
    bool excludes = false;
    std::optional<int64_t> bits, group;
    std::optional<bool> symmetric, act_order;
  };
  /// What `dynamic` says of a module; rules that match and disagree are an InputError, because the
  /// first one of the file counts and the members of an object have no order.
  const Rule* rule_of(std::string_view module) const;
  /// The same by the module's own name alone.
  const std::string* entry_for(std::string_view module) const;
  const std::string* entry_for_join_of(std::string_view module) const;

  /// Both keys for it must mean the same.
  void read_kv_cache(const JsonNode& quant);
  void read_compressed_tensors(const JsonNode& quant);
  void read_gptq(const JsonNode& quant);
  void read_dynamic(const JsonNode& rules);
  void read_awq(const JsonNode& quant);
  void read_fp8(const JsonNode& quant);
  /// `nested`: hf_quant_config.json's "quantization", which must say more.
  void read_modelopt(const JsonNode& quant, bool nested);
  void read_modelopt_groups(const JsonNode& groups);
  void read_quantized_layers(const JsonNode& layers, const JsonNode& quant, bool nested);
  /// The names of a group and its number of bits must be those of quantized_layers.
  void hold_group_against_layers(const JsonNode& group) const;
  /// The scheme of a ModelOpt module, and the entry of quantized_layers that says so (none where
  /// one algorithm serves all); null: there is none. Entries that match and differ, for the module,
  /// what is above it, or what it is joined of or into, are an InputError.
  const ModelOptScheme* modelopt_scheme_of(std::string_view module,
                                           std::string* entry = nullptr) const;
  /// Both forms must say the same.
  void hold_against_nested(const QuantConfig& nested) const;
  void hold_layers_against(const QuantConfig& nested) const;

  std::string file_;
  QuantMethod method_ = QuantMethod::kNone;
  ModuleList ignore_;
  ModuleList targets_;
  std::string at_ = "quantization_config";  ///< where it is in the file, for messages
  bool present_ = false;                    ///< though it may leave all weights as they are
  const char* ignore_key_ = "ignore";       ///< for messages
  KvAlgorithm kv_ = KvAlgorithm::kNone;
  std::string kv_text_;      ///< as the file has it, with its key: "kv_cache_quant_algo, FP8"
  Int4Scheme int4_;          ///< of every module but for `dynamic` and `groups_`
  Fp8Scheme fp8_;            ///< of every module but for `groups_`
  ModelOptScheme modelopt_;  ///< of every module, but with kModelOptMixed
  /// quantized_layers; names without "language_model."
  std::map<std::string, ModelOptScheme, std::less<>> layers_;
  std::vector<Rule> dynamic_;
  std::vector<std::string> substrings_;  ///< AWQ's modules_to_not_convert
  struct Group {
    ModuleList targets;
    Int4Scheme int4;
    Fp8Scheme fp8;
  };
  /// The group of a module; null: none. Groups that match and disagree are an InputError.
  const Group* group_of(std::string_view module) const;
  std::vector<Group> groups_;  ///< of compressed-tensors int4 and fp8
};

/// The entries of an array of names and patterns.
void read_list(const JsonNode& list, ModuleList* to);

}  // namespace quern::smoke
