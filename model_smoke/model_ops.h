#pragma once

#include <cstdint>

#include "model_smoke/layers/attention.h"
#include "model_smoke/layers/conv1d.h"
#include "model_smoke/layers/delta_rule.h"
#include "model_smoke/layers/norm.h"
#include "model_smoke/layers/rope.h"
#include "model_smoke/linear.h"
#include "quern/span.h"

namespace quern::smoke {

/// Which op of the model runs.
struct OpSite {
  int64_t layer = -1;       ///< -1: outside the layers
  const char* module = "";  ///< below the layer: "self_attn.q_norm"
};

/// Every op of a forward pass goes through one of these functions, so that whoever wraps them sees
/// its actual inputs and outputs: `compare` holds each op against the reference, and the tests of
/// `compare` break one on purpose.
class ModelOps {
 public:
  virtual ~ModelOps() = default;

  virtual void embed(OpSite site, MatrixView table, Span<const int64_t> ids,
                     MutableMatrixView y) = 0;
  virtual void rms_norm(OpSite site, const NormArgs& args) = 0;
  virtual void rope(OpSite site, const RopeTable& table, MutableHeadView x) = 0;
  virtual void append_kv(OpSite site, HeadView k, HeadView v, KvCache& cache) = 0;
  virtual void attention(OpSite site, const AttentionArgs& args, const KvCache& cache) = 0;
  virtual void conv(OpSite site, const ConvArgs& args, ConvState& state) = 0;
  virtual void delta_gates(OpSite site, const DeltaGateArgs& args) = 0;
  virtual void delta_rule(OpSite site, const DeltaRule& rule, const DeltaArgs& args,
                          DeltaState& state) = 0;
  virtual void gated_norm(OpSite site, const GatedNormArgs& args) = 0;
  virtual void silu_mul(OpSite site, MatrixView gate, MatrixView up, MutableMatrixView y) = 0;
  /// What goes into a projection, times a factor for each column.
  virtual void scale_columns(OpSite site, MatrixView x, VectorView factors,
                             MutableMatrixView y) = 0;
  /// The op's own name says where it is.
  virtual void linear(OpSite site, const LinearOp& op, const LinearArgs& args) = 0;
};

/// Runs them.
class DirectOps final : public ModelOps {
 public:
  DirectOps(ThreadPool& pool, LayerImpl impl) : exec_(pool, impl) {}

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
  void linear(OpSite site, const LinearOp& op, const LinearArgs& args) override;

 private:
  LayerExec exec_;
};

}  // namespace quern::smoke
