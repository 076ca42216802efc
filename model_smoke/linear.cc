#include "model_smoke/linear.h"

#include <algorithm>
#include <utility>

#include "model_smoke/input_error.h"
#include "model_smoke/layers/norm.h"
#include "model_smoke/linear_ops.h"

namespace quern::smoke {

const char* to_string(Backend backend) noexcept {
  return backend == Backend::kJit ? "jit" : "reference";
}

const char* to_string(ActMode act) noexcept {
  switch (act) {
    case ActMode::kF32:
      return "f32";
    case ActMode::kBF16:
      return "bf16";
    case ActMode::kInt8:
      return "int8";
  }
  return "?";
}

ComputeMode choose_mode(Backend backend, std::optional<ActMode> act, bool model_has_int8) {
  if (!act) {
    if (backend == Backend::kReference) return {backend, ActMode::kF32};
    return {backend, model_has_int8 ? ActMode::kInt8 : ActMode::kBF16};
  }
  const bool legal = *act == ActMode::kBF16 ||
                     (*act == ActMode::kF32 && backend == Backend::kReference) ||
                     (*act == ActMode::kInt8 && model_has_int8);
  if (!legal) {
    std::string expected = backend == Backend::kReference ? "f32, bf16" : "bf16";
    if (model_has_int8) expected += ", int8";
    throw InputError("--act", "",
                     expected + " (with --backend " + to_string(backend) + " on a model with " +
                         (model_has_int8 ? "int8" : "no int8") + " weights)",
                     to_string(*act));
  }
  return {backend, *act};
}

std::unique_ptr<LinearOp> make_linear_op(const Context& ctx, const ComputeMode& mode,
                                         HostWeights weights, const LinearOutput& output) {
  if (mode.act != ActMode::kF32 && weights.format == ModuleFormat::kPlain) to_bf16(weights);
  return mode.backend == Backend::kJit
             ? make_jit_linear(ctx, mode, std::move(weights), output)
             : make_reference_linear(ctx, mode, std::move(weights), output);
}

std::unique_ptr<LinearOp> make_gate_up_op(const Context& ctx, const ComputeMode& mode,
                                          HostWeights gate, HostWeights up) {
  if (gate.format == ModuleFormat::kPlain) {
    to_bf16(gate);
    to_bf16(up);
  }
  return mode.backend == Backend::kJit
             ? make_jit_gate_up(ctx, mode, std::move(gate), std::move(up))
             : make_reference_gate_up(ctx, mode, std::move(gate), std::move(up));
}

void to_bf16(HostWeights& weights) {
  if (weights.values.dtype() != DType::kF32) return;
  Tensor rounded(DType::kBF16, weights.n(), weights.k());
  for (int64_t r = 0; r < weights.n(); ++r) {
    const float* in = weights.values.row<float>(r);
    bfloat16* out = rounded.row<bfloat16>(r);
    for (int64_t c = 0; c < weights.k(); ++c) out[c] = bfloat16::from_float(in[c]);
  }
  weights.values = std::move(rounded);
}

Linear::Linear(const Context& ctx, const ComputeMode& mode, std::vector<HostWeights> parts,
               const LinearOutput& output)
    : output_(output) {
  for (HostWeights& weights : parts) {
    const int64_t n = weights.n();
    parts_.push_back({make_linear_op(ctx, mode, std::move(weights), output), n_, n});
    n_ += n;
  }
}

size_t Linear::scratch_bytes(int64_t max_m) const {
  size_t bytes = 0;
  for (const Part& part : parts_) bytes = std::max(bytes, part.op->scratch_bytes(max_m));
  return bytes;
}

void Linear::run(MatrixView a, MutableMatrixView c, Span<std::byte> scratch) const {
  require(c.cols == n_, "Linear::run: the output has another width");
  for (const Part& part : parts_) {
    part.op->run(a, columns(c, part.first_column, part.n), scratch);
  }
}

std::vector<const LinearOp*> Linear::ops() const {
  std::vector<const LinearOp*> out;
  for (const Part& part : parts_) out.push_back(part.op.get());
  return out;
}

GateUp::GateUp(const Context& ctx, const ComputeMode& mode, HostWeights gate, HostWeights up) {
  if (mode.act != ActMode::kF32 && gate.format == up.format) {
    fused_ = make_gate_up_op(ctx, mode, std::move(gate), std::move(up));
    return;
  }
  const LinearOutput output{.dtype = mode.activations()};
  std::vector<HostWeights> part;
  part.push_back(std::move(gate));
  gate_ = Linear(ctx, mode, std::move(part), output);
  part.clear();
  part.push_back(std::move(up));
  up_ = Linear(ctx, mode, std::move(part), output);
}

size_t GateUp::scratch_bytes(int64_t max_m) const {
  if (fused_) return fused_->scratch_bytes(max_m);
  return std::max(gate_.scratch_bytes(max_m), up_.scratch_bytes(max_m));
}

void GateUp::run(LayerExec& exec, MatrixView a, MutableMatrixView c, Span<std::byte> scratch) {
  if (fused_) {
    fused_->run(a, c, scratch);
    return;
  }
  gate_out_.resize(c.dtype, c.rows, c.cols);
  up_out_.resize(c.dtype, c.rows, c.cols);
  gate_.run(a, gate_out_.mutable_view(), scratch);
  up_.run(a, up_out_.mutable_view(), scratch);
  silu_mul(exec, gate_out_.view(), up_out_.view(), c);
}

std::vector<const LinearOp*> GateUp::ops() const {
  if (fused_) return {fused_.get()};
  std::vector<const LinearOp*> out = gate_.ops();
  for (const LinearOp* op : up_.ops()) out.push_back(op);
  return out;
}

}  // namespace quern::smoke
