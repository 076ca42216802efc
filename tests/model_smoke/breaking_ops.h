#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "model_smoke/model_ops.h"

namespace quern::smoke::test {

/// Runs every op as DirectOps does, and breaks one output of one op on purpose: what `compare` has
/// to find.
class BreakingOps final : public ModelOps {
 public:
  struct Fault {
    std::string op;  ///< as in OpRecord; for linears any part of the module's name
    int64_t layer = -1;
    std::string module;  ///< of the site, or for linears any part of the op's name
    std::string output = "output";
  };

  BreakingOps(ModelOps& inner, Fault fault) : inner_(inner), fault_(std::move(fault)) {}

  /// How often the fault was set; a test with 0 would test nothing.
  int hits() const noexcept { return hits_; }

  /// Instead of a flipped bit: runs a linear op wrongly.
  using LinearFault = std::function<void(const LinearOp&, const LinearArgs&)>;
  void set_linear_fault(LinearFault fault) { linear_fault_ = std::move(fault); }

  void embed(OpSite site, MatrixView table, Span<const int64_t> ids, MutableMatrixView y) override {
    inner_.embed(site, table, ids, y);
    if (hit("embed", site)) flip(y);
  }
  void rms_norm(OpSite site, const NormArgs& args) override {
    inner_.rms_norm(site, args);
    if (hit("rms_norm", site)) flip(args.y);
  }
  void rope(OpSite site, const RopeTable& table, MutableHeadView x) override {
    inner_.rope(site, table, x);
    if (hit("rope", site)) flip(x);
  }
  void append_kv(OpSite site, HeadView k, HeadView v, KvCache& cache) override {
    inner_.append_kv(site, k, v, cache);
    if (!hit("append_kv", site)) return;
    const int64_t at = (cache.length() - 1) * cache.stride();
    if (cache.dtype() == DType::kE4M3) {
      const_cast<e4m3*>(cache.values<e4m3>(0))[at].bits ^= 1;
    } else {
      const_cast<bfloat16*>(cache.values<bfloat16>(0))[at].bits ^= 1;
    }
  }
  void attention(OpSite site, const AttentionArgs& args, const KvCache& cache) override {
    inner_.attention(site, args, cache);
    if (hit("attention", site)) flip(args.out);
  }
  void conv(OpSite site, const ConvArgs& args, ConvState& state) override {
    inner_.conv(site, args, state);
    if (hit("conv1d_silu", site)) flip(args.y);
    if (hit("conv1d_silu", site, "state")) flip_float(state.rows[0], 1);
  }
  void delta_gates(OpSite site, const DeltaGateArgs& args) override {
    inner_.delta_gates(site, args);
    if (hit("delta_gates", site, "g")) flip(args.g);
    if (hit("delta_gates", site, "beta")) flip(args.beta);
  }
  void delta_rule(OpSite site, const DeltaRule& rule, const DeltaArgs& args,
                  DeltaState& state) override {
    inner_.delta_rule(site, rule, args, state);
    if (hit("delta_rule", site)) flip(args.o);
    if (!hit("delta_rule", site, "state")) return;
    MutableMatrixView first{state.head(0), DType::kF32, rule.shape.key_dim, rule.shape.value_dim,
                            state.stride};
    flip(first);
  }
  void gated_norm(OpSite site, const GatedNormArgs& args) override {
    inner_.gated_norm(site, args);
    if (hit("gated_rms_norm", site)) flip(args.y);
  }
  void silu_mul(OpSite site, MatrixView gate, MatrixView up, MutableMatrixView y) override {
    inner_.silu_mul(site, gate, up, y);
    if (hit("silu_mul", site)) flip(y);
  }
  void scale_columns(OpSite site, MatrixView x, VectorView factors, MutableMatrixView y) override {
    inner_.scale_columns(site, x, factors, y);
    if (hit("scale_columns", site)) flip(y);
  }
  void linear(OpSite site, const LinearOp& op, const LinearArgs& args) override {
    const bool breaks = fault_.op == "linear" && fault_.layer == site.layer &&
                        op.name().find(fault_.module) != std::string::npos;
    hits_ += breaks;
    if (breaks && linear_fault_) return linear_fault_(op, args);
    inner_.linear(site, op, args);
    if (breaks) flip(args.c);
  }

 private:
  bool hit(const char* op, OpSite site, const char* output = "output") {
    const bool hits = fault_.op == op && fault_.layer == site.layer &&
                      fault_.module == site.module && fault_.output == output;
    hits_ += hits;
    return hits;
  }

  static void flip_float(float& x, uint32_t bit) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    bits ^= bit;
    std::memcpy(&x, &bits, sizeof(bits));
  }

  /// The bit that is the lowest of a bf16, in the largest of n elements: nothing cancels there, so
  /// no bound reaches that far.
  template <typename At>
  static void flip_largest(DType dtype, int64_t n, At&& at) {
    double largest = -1;
    void* place = nullptr;
    for (int64_t i = 0; i < n; ++i) {
      void* p = at(i);
      const double x = dtype == DType::kBF16
                           ? static_cast<double>(static_cast<bfloat16*>(p)->to_float())
                           : static_cast<double>(*static_cast<float*>(p));
      if (std::fabs(x) > largest) {
        largest = std::fabs(x);
        place = p;
      }
    }
    if (dtype == DType::kBF16) {
      // Not the last one: where the exact value is between two neighbours, both are right.
      static_cast<bfloat16*>(place)->bits ^= 2;
    } else {
      flip_float(*static_cast<float*>(place), 1u << 16);
    }
  }
  static void flip(MutableMatrixView m) {
    flip_largest(m.dtype, m.rows * m.cols, [&](int64_t i) -> void* {
      return static_cast<std::byte*>(m.data) +
             static_cast<size_t>(i / m.cols * m.row_stride + i % m.cols) * size_of(m.dtype);
    });
  }
  static void flip(MutableHeadView x) {
    flip_largest(x.dtype, x.rows * x.heads * x.dim, [&](int64_t i) -> void* {
      return x.at<bfloat16>(i / x.dim / x.heads, i / x.dim % x.heads) + i % x.dim;
    });
  }

  ModelOps& inner_;
  Fault fault_;
  LinearFault linear_fault_;
  int hits_ = 0;
};

}  // namespace quern::smoke::test
