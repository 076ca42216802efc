#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "model_smoke/model_ops.h"
#include "model_smoke/reference_check/comparison.h"
#include "quern/thread_pool.h"

namespace quern::smoke {

/// One output of one op that ran, held against the reference.
struct OpRecord {
  int64_t first_token = 0;  ///< of the call, in the sequence
  int64_t layer = -1;       ///< -1: outside the layers
  std::string module;
  std::string op;      ///< "rms_norm", "int8_gemm", ...
  std::string output;  ///< "output", or which of several: "state", "g", "beta"
  std::string kernel;
  Comparison comparison;
};

/// Runs every op through `inner`, then compares what came out with the reference on the inputs that
/// went in. An op that writes over an input gets a copy of it made first; nothing is kept longer
/// than the op. A difference does not travel: the next op is judged by its own actual inputs.
class ComparingOps final : public ModelOps {
 public:
  using Sink = std::function<void(const OpRecord&)>;

  /// `layers` is what the layers' kernels are called.
  ComparingOps(ModelOps& inner, ThreadPool& pool, std::string layers, Sink sink)
      : inner_(inner), pool_(pool), layers_(std::move(layers)), sink_(std::move(sink)) {}

  /// Position in the sequence that the records of the next calls carry.
  void set_first_token(int64_t position) noexcept { first_token_ = position; }

  void embed(OpSite site, MatrixView table, Span<const int64_t> ids, MutableMatrixView y) override;
  void rms_norm(OpSite site, const NormArgs& args) override;
  void rope(OpSite site, const RopeTable& table, MutableHeadView x) override;
  void append_kv(OpSite site, HeadView k, HeadView v, KvCache& cache) override;
  void attention(OpSite site, const AttentionArgs& args, const KvCache& cache) override;
  void conv(OpSite site, const ConvArgs& args, ConvState& state) override;
  void delta_gates(OpSite site, const DeltaGateArgs& args) override;
  void delta_rule(OpSite site, const DeltaRule& rule, const DeltaArgs& args,
                  DeltaState& state) override;
  void gated_norm(OpSite site, const GatedNormArgs& args) override;
  void silu_mul(OpSite site, MatrixView gate, MatrixView up, MutableMatrixView y) override;
  void scale_columns(OpSite site, MatrixView x, VectorView factors, MutableMatrixView y) override;
  /// Throws std::logic_error for an op that did not keep what it was made from.
  void linear(OpSite site, const LinearOp& op, const LinearArgs& args) override;

 private:
  void report(OpSite site, const char* op, const Comparison& comparison,
              const char* output = "output") const;

  ModelOps& inner_;
  ThreadPool& pool_;
  std::string layers_;
  Sink sink_;
  int64_t first_token_ = 0;
};

}  // namespace quern::smoke
