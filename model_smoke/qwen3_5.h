#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model_smoke/checkpoint.h"
#include "model_smoke/kv_cache_plan.h"
#include "model_smoke/layers/rope.h"
#include "model_smoke/linear.h"
#include "model_smoke/model_cache.h"
#include "model_smoke/model_config.h"
#include "model_smoke/model_ops.h"
#include "model_smoke/quant_config.h"
#include "quern/context.h"
#include "quern/span.h"

namespace quern::smoke {

/// How a call of forward differs from the usual.
struct ForwardOptions {
  bool last_only = false;  ///< logits of the last token only
  std::optional<DeltaForm> delta =
      std::nullopt;  ///< none: chunked for several tokens, recurrent for one
  /// Sees "embed", "layer0" .. (the residual stream behind each layer) and "final_norm", once for
  /// each block of kPrefillBlock tokens.
  std::function<void(std::string_view name, MatrixView value)> observer = {};
  /// Runs every op; null: the model's own. See ModelOps.
  ModelOps* ops = nullptr;
};

/// What a model is loaded for.
struct LoadMode {
  Backend backend = Backend::kJit;
  std::optional<ActMode> act = std::nullopt;  ///< none: the backend's default
  bool keep_source = false;                   ///< for `compare`: the weights a second time
  bool inspect = false;                       ///< for `inspect`: a model that cannot run
  PackingReport* packing = nullptr;           ///< told about weights as they are packed
  KvCacheChoice kv_cache = KvCacheChoice::kAuto;
};

/// Qwen3.5 dense, text (models.md section 1). Not thread-safe: it owns the buffers of a call.
class Qwen3_5 {
 public:
  /// Longer inputs are run in blocks of this many tokens, so that buffers stay small. A multiple of
  /// the delta rule's chunk: the cut changes no chunk.
  static constexpr int64_t kPrefillBlock = 512;
  static_assert(kPrefillBlock % kDeltaChunk == 0);

  /// Takes its tensors out of `checkpoint`, ignores vision and multi-token-prediction tensors and
  /// throws InputError when anything is missing, left over or of the wrong shape. The context and
  /// its pool must outlive the model.
  static Qwen3_5 load(const Context& ctx, const ModelConfig& config, const QuantConfig& quant,
                      Checkpoint& checkpoint, const LoadMode& mode);

  const ModelConfig& config() const noexcept { return config_; }
  const ComputeMode& mode() const noexcept { return mode_; }

  ModelCache make_cache() const;
  /// Appends ids (each in [0, vocab_size)) to the sequence in `cache` and computes logits, f32
  /// [ids.size() or 1, vocab_size].
  void forward(Span<const int32_t> ids, ModelCache& cache, const ForwardOptions& options,
               Tensor& logits);

  /// Runs ops as a forward pass without ForwardOptions::ops does.
  ModelOps& direct_ops() noexcept { return ops_; }

  /// Every projection op, for summaries.
  std::vector<const LinearOp*> ops() const;
  const KvCachePlan& kv_cache() const noexcept { return kv_cache_; }
  /// Every other tensor that was taken.
  const std::vector<Parameter>& parameters() const noexcept { return parameters_; }

 private:
  struct FullAttention {
    Linear qkv;  // per query head: q rows then gate rows; then k heads, then v heads
    Linear out;
    std::vector<float> q_norm, k_norm;
  };
  struct DeltaNet {
    Linear qkvz;  // conv channels (q, k, v heads), then z
    Linear ba;    // b, then a, f32
    Linear out;
    ConvWeights conv;
    std::vector<float> a_log, dt_bias, norm;
  };
  struct Layer {
    std::vector<float> input_norm, post_norm;
    std::optional<FullAttention> attention;
    std::optional<DeltaNet> delta_net;
    GateUp gate_up;
    Linear down;
  };
  class Builder;

  Qwen3_5(const Context& ctx, const ModelConfig& config, const ComputeMode& mode);
  void forward_block(Span<const int64_t> ids, ModelCache& cache, const ForwardOptions& options,
                     ModelOps& ops);
  void run_attention(ModelOps& ops, int64_t index, LayerCache& cache, int64_t position);
  void run_delta_net(ModelOps& ops, int64_t index, LayerCache& cache,
                     const ForwardOptions& options);
  void observe(const ForwardOptions& options, std::string_view name, const Tensor& value) const;
  Span<std::byte> scratch() const noexcept { return {scratch_.data(), scratch_.size()}; }

  ModelConfig config_;
  ComputeMode mode_;
  DirectOps ops_;
  DeltaShape delta_shape_;
  RopeTable rope_;
  Tensor embedding_;  // [vocab, hidden], bf16 or f32 as in the file
  std::vector<float> final_norm_;
  std::vector<Layer> layers_;
  Linear lm_head_;
  std::vector<Parameter> parameters_;
  KvCachePlan kv_cache_;

  // Buffers of a block, in the activation type unless said otherwise.
  AlignedBuffer scratch_;
  Tensor hidden_;     // residual stream
  Tensor normed_;     // input of the projections
  Tensor projected_;  // qkv with gates, or qkvz
  Tensor ba_;         // f32
  Tensor g_, beta_;   // f32
  Tensor mixed_;      // behind the convolution, or q behind norm and RoPE
  Tensor keys_;       // k behind norm and RoPE
  Tensor core_;       // output of attention or delta rule
  Tensor gated_;      // behind the gated norm
  Tensor mlp_;        // silu(gate) * up
};

}  // namespace quern::smoke
