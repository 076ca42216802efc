#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model_smoke/json_file.h"
#include "model_smoke/linear.h"
#include "model_smoke/model_dir.h"
#include "model_smoke/safetensors.h"

namespace quern::smoke {

struct Tolerance;

/// One golden prompt: what an independent implementation computed.
struct GoldenPrompt {
  std::vector<int32_t> ids;
  std::vector<float> logits;       ///< [T, vocab], f32 arithmetic on exactly dequantized weights
  std::vector<float> logits_actq;  ///< with dynamic activation quantization; may be empty
  std::vector<float> logits_kvq;   ///< with K and V rounded through FP8; may be empty
  std::vector<int32_t> greedy;     ///< the greedy continuation of `logits`
  std::vector<float> margin;       ///< distance to the second best logit, per greedy token

  std::vector<int32_t> greedy_kvq;  ///< the greedy continuation of `logits_kvq`; may be empty

  const std::vector<float>& expected(const Tolerance& tolerance) const;
  const std::vector<int32_t>& expected_greedy(const Tolerance& tolerance) const;
};

/// goldens.safetensors with the goldens.json beside it.
class Goldens {
 public:
  /// From the model directory, or from `file` and the .json of the same name.
  static Goldens load(const ModelDir& dir, const std::string& file, int64_t vocab_size);

  const std::string& source() const noexcept { return source_; }
  const std::vector<GoldenPrompt>& prompts() const noexcept { return prompts_; }
  const std::string& name() const noexcept { return name_; }
  const std::string& family() const noexcept { return family_; }  ///< "public" or "trained"
  const std::string& kind() const noexcept { return kind_; }      ///< "qwen", "qwen_vl", ..
  const std::string& format() const noexcept { return format_; }  ///< empty: not quantized
  /// actq_vs_f32.rel_rms, where the file has it.
  std::optional<double> actq_rel_rms() const noexcept { return actq_rel_rms_; }

 private:
  std::string source_, name_, family_, kind_, format_;
  std::optional<double> actq_rel_rms_;
  std::vector<GoldenPrompt> prompts_;
};

/// The row of the two golden READMEs that an arithmetic is held to.
struct Tolerance {
  std::string row;  ///< printed: which row and its numbers
  enum class Logits : uint8_t { kF32, kActq, kKvq };
  Logits against = Logits::kF32;
  std::optional<double> max_abs, rel_rms, kl, argmax;
  /// Greedy tokens must be equal while the stored margin exceeds this; none: not checked.
  std::optional<double> greedy_margin;
};

/// Chosen by family, kind, format and arithmetic. Throws InputError where there is no row.
Tolerance choose_tolerance(const Goldens& goldens, const ComputeMode& mode);

}  // namespace quern::smoke
