#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model_smoke/layers/exec.h"
#include "model_smoke/packing_report.h"
#include "model_smoke/weights.h"
#include "quern/context.h"
#include "quern/span.h"
#include "quern/tensor_view.h"

namespace quern::smoke {

/// What multiplies: plans of the public ops, or the scalar reference ops.
enum class Backend { kJit, kReference };
/// What a projection multiplies its weights with. kF32: nothing between ops is rounded (reference
/// only). kBF16: bf16 between ops. kInt8: bf16 between ops, quantized per row before int8 and int4
/// weights; bf16 weights are multiplied as they are.
enum class ActMode { kF32, kBF16, kInt8 };

const char* to_string(Backend backend) noexcept;
const char* to_string(ActMode act) noexcept;

/// How all linear modules of a model compute.
struct ComputeMode {
  Backend backend = Backend::kJit;
  ActMode act = ActMode::kBF16;
  bool keep_source = false;          ///< ops keep what they were made from, for `compare`
  bool inspect = false;              ///< ops are planned and packed, then let go: they cannot run
  PackingReport* packing = nullptr;  ///< told about weights as they are packed
  bool fp8_kv = false;               ///< keys and values are kept as e4m3

  /// Type of what ops hand to each other.
  DType activations() const noexcept { return act == ActMode::kF32 ? DType::kF32 : DType::kBF16; }
};

/// The mode for a model: `act` as asked for, else the backend's default. Throws InputError listing
/// the legal ones where the pair cannot be.
ComputeMode choose_mode(Backend backend, std::optional<ActMode> act, QuantMethod method);

/// What happens behind the product.
struct LinearOutput {
  DType dtype = DType::kBF16;
  bool residual = false;  ///< C = C + product, C rounded once
};

/// What a linear op was made from.
struct LinearSource {
  HostWeights weights;
  HostWeights up;  ///< empty: no gate and up; else `weights` is the gate
  ComputeMode mode;
  LinearOutput output;

  bool gated() const noexcept { return up.n() > 0; }
  /// The modules, joined by "+".
  std::string name() const { return weights.name + (gated() ? "+" + up.name : std::string()); }
};

/// What there is to say of a linear op beside its plan.
struct LinearInfo {
  std::string stored;   ///< as HostWeights::stored
  std::string joined;   ///< as HostWeights::joined; for gate and up, what became of them
  std::string decided;  ///< as HostWeights::decided
  uint64_t file_bytes = 0;
  int64_t n = 0, k = 0;  ///< of each part
  bool gated = false;
  bool residual = false;
  std::string refused;  ///< why there is no plan (only where ComputeMode::inspect); empty: there is
};

/// The operands of a call.
struct LinearArgs {
  MatrixView a;
  MutableMatrixView c;
  Span<std::byte> scratch;
};

/// One matrix (or gate and up) and the plan that multiplies it.
class LinearOp {
 public:
  virtual ~LinearOp() = default;
  /// The modules, joined by "+".
  const std::string& name() const noexcept { return name_; }
  /// Null unless ComputeMode::keep_source was set: it holds the weights a second time.
  const LinearSource* source() const noexcept { return source_.get(); }
  void keep_source(std::unique_ptr<const LinearSource> source) { source_ = std::move(source); }
  const LinearInfo& info() const noexcept { return info_; }
  void set_info(LinearInfo info) { info_ = std::move(info); }

  virtual size_t scratch_bytes(int64_t max_m) const = 0;
  /// Throws std::runtime_error with the op's message when the op refuses.
  virtual void run(MatrixView a, MutableMatrixView c, Span<std::byte> scratch) const = 0;
  /// "int8_gemm n 512 k 256 (act int8)".
  virtual std::string describe() const = 0;
  /// The plan's own explanation; empty for reference ops.
  virtual std::string explain() const = 0;
  virtual size_t weight_bytes() const = 0;
  /// How the weights lie in memory: a layout id, or "row-major".
  virtual std::string layout() const { return "row-major"; }

 protected:
  explicit LinearOp(std::string name) : name_(std::move(name)) {}

 private:
  std::string name_;
  std::unique_ptr<const LinearSource> source_;
  LinearInfo info_;
};

std::unique_ptr<LinearOp> make_linear_op(const Context& ctx, const ComputeMode& mode,
                                         HostWeights weights, const LinearOutput& output);
/// C = silu(gate) * up in one op; both parts of one format and shape.
std::unique_ptr<LinearOp> make_gate_up_op(const Context& ctx, const ComputeMode& mode,
                                          HostWeights gate, HostWeights up);

class ModelOps;
struct OpSite;

/// What an op multiplies, where AWQ has factors for the columns of its input: a file that was made
/// with them has weights divided by them.
class ScaledInput {
 public:
  ScaledInput() = default;
  explicit ScaledInput(std::vector<float> factors) : factors_(std::move(factors)) {}

  /// `a` itself where there are no factors; else a buffer that the next call uses again.
  MatrixView of(ModelOps& ops, OpSite site, MatrixView a);

 private:
  std::vector<float> factors_;
  Tensor scaled_;
};

/// Linear modules that read the same input and write neighbouring columns of one output.
class Linear {
 public:
  Linear() = default;
  Linear(const Context& ctx, const ComputeMode& mode, std::vector<HostWeights> parts,
         const LinearOutput& output);

  int64_t n() const noexcept { return n_; }
  const LinearOutput& output() const noexcept { return output_; }
  size_t scratch_bytes(int64_t max_m) const;
  void run(ModelOps& ops, OpSite site, const LinearArgs& args);
  /// Every op behind this module, for summaries.
  std::vector<const LinearOp*> ops() const;

 private:
  struct Part {
    std::unique_ptr<LinearOp> op;
    int64_t first_column;
    int64_t n;
    ScaledInput input;
  };
  std::vector<Part> parts_;
  LinearOutput output_;
  int64_t n_ = 0;
};

/// The gate/up half of the MLP: one op where both parts have one format, else two and an
/// element-wise layer.
class GateUp {
 public:
  GateUp() = default;
  GateUp(const Context& ctx, const ComputeMode& mode, HostWeights gate, HostWeights up);

  size_t scratch_bytes(int64_t max_m) const;
  /// c: [M, n] in the mode's activation type.
  void run(ModelOps& ops, OpSite site, const LinearArgs& args);
  std::vector<const LinearOp*> ops() const;

 private:
  std::unique_ptr<LinearOp> fused_;
  ScaledInput input_;  // of the fused op
  Linear gate_, up_;
  Tensor gate_out_, up_out_;
};

}  // namespace quern::smoke
