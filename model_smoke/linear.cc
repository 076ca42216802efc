#include "model_smoke/linear.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "model_smoke/input_error.h"
#include "model_smoke/linear_ops.h"
#include "model_smoke/model_ops.h"

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

ComputeMode choose_mode(Backend backend, std::optional<ActMode> act, QuantMethod method) {
  const bool integers = is_int8(method) || is_int4(method);
  if (!act) {
    if (backend == Backend::kReference) return {backend, ActMode::kF32};
    // Formats of W8A8 were made for it; the others are as accurate as their files with bf16.
    return {backend, is_int8(method) ? ActMode::kInt8 : ActMode::kBF16};
  }
  const bool legal = *act == ActMode::kBF16 ||
                     (*act == ActMode::kF32 && backend == Backend::kReference) ||
                     (*act == ActMode::kInt8 && integers);
  if (!legal) {
    std::string expected = backend == Backend::kReference ? "f32, bf16" : "bf16";
    if (integers) expected += ", int8";
    const char* weights = is_int4(method) ? "int4" : integers ? "int8" : "no int8 or int4";
    throw InputError("--act", "",
                     expected + " (with --backend " + to_string(backend) + " on a model with " +
                         weights + " weights)",
                     to_string(*act));
  }
  return {backend, *act};
}

std::unique_ptr<LinearOp> make_backend_op(const Context& ctx, LinearSource source) {
  return source.mode.backend == Backend::kJit ? make_jit_op(ctx, std::move(source))
                                              : make_reference_op(ctx, std::move(source));
}

namespace {

std::unique_ptr<LinearOp> make_op(const Context& ctx, LinearSource source) {
  const bool f32 = source.mode.act == ActMode::kF32;
  if (!f32 && source.weights.format == ModuleFormat::kPlain) {
    to_bf16(source.weights);
    to_bf16(source.up);
  }
  LinearInfo info{.stored = source.weights.stored,
                  .joined = source.weights.joined,
                  .decided = source.weights.decided,
                  .file_bytes = source.weights.file_bytes + source.up.file_bytes,
                  .n = source.weights.n(),
                  .k = source.weights.k(),
                  .gated = source.gated(),
                  .residual = source.output.residual,
                  .refused = {}};
  std::unique_ptr<const LinearSource> kept;
  if (source.mode.keep_source) kept = std::make_unique<LinearSource>(copy(source));
  std::unique_ptr<LinearOp> op = source.mode.inspect ? make_inspected_op(ctx, std::move(source))
                                                     : make_backend_op(ctx, std::move(source));
  info.refused = op->info().refused;
  op->set_info(std::move(info));
  op->keep_source(std::move(kept));
  return op;
}

}  // namespace

std::unique_ptr<LinearOp> make_linear_op(const Context& ctx, const ComputeMode& mode,
                                         HostWeights weights, const LinearOutput& output) {
  return make_op(ctx, {.weights = std::move(weights), .up = {}, .mode = mode, .output = output});
}

std::unique_ptr<LinearOp> make_gate_up_op(const Context& ctx, const ComputeMode& mode,
                                          HostWeights gate, HostWeights up) {
  return make_op(ctx,
                 {.weights = std::move(gate), .up = std::move(up), .mode = mode, .output = {}});
}

HostWeights copy(const HostWeights& from) {
  HostWeights to;
  to.name = from.name;
  to.format = from.format;
  to.int4 = from.int4;
  to.fp8 = from.fp8;
  to.fp4 = from.fp4;
  to.decided = from.decided;
  to.scale = from.scale;
  to.bias = from.bias;
  to.stored = from.stored;
  to.joined = from.joined;
  to.file_bytes = from.file_bytes;
  const Tensor& values = from.values;
  to.values.resize(values.dtype(), values.rows(), values.cols());
  const size_t bytes = static_cast<size_t>(values.rows() * values.cols()) * size_of(values.dtype());
  if (bytes > 0) {
    std::memcpy(to.values.row<std::byte>(0), from.values.row<std::byte>(0), bytes);
  }
  return to;
}

LinearSource copy(const LinearSource& from) {
  return {
      .weights = copy(from.weights), .up = copy(from.up), .mode = from.mode, .output = from.output};
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
    ScaledInput input(weights.pre_quant_scale());
    parts_.push_back(
        {make_linear_op(ctx, mode, std::move(weights), output), n_, n, std::move(input)});
    n_ += n;
  }
}

size_t Linear::scratch_bytes(int64_t max_m) const {
  size_t bytes = 0;
  for (const Part& part : parts_) bytes = std::max(bytes, part.op->scratch_bytes(max_m));
  return bytes;
}

MatrixView ScaledInput::of(ModelOps& ops, OpSite site, MatrixView a) {
  if (factors_.empty()) return a;
  scaled_.resize(a.dtype, a.rows, a.cols);
  ops.scale_columns(site, a, vector_view(factors_.data(), a.cols), scaled_.mutable_view());
  return scaled_.view();
}

void Linear::run(ModelOps& ops, OpSite site, const LinearArgs& args) {
  require(args.c.cols == n_, "Linear::run: the output has another width");
  for (Part& part : parts_) {
    LinearArgs own = args;
    own.a = part.input.of(ops, site, args.a);
    own.c = columns(args.c, part.first_column, part.n);
    ops.linear(site, *part.op, own);
  }
}

std::vector<const LinearOp*> Linear::ops() const {
  std::vector<const LinearOp*> out;
  for (const Part& part : parts_) out.push_back(part.op.get());
  return out;
}

namespace {

/// Whether one op can multiply both. Global scales may differ, grids of blocks may not.
bool share_an_op(const HostWeights& gate, const HostWeights& up) {
  if (gate.format != up.format) return false;
  if (gate.int4) return gate.int4->form == up.int4->form;
  if (gate.fp8) return gate.fp8->form == up.fp8->form;
  return gate.pre_quant_scale() == up.pre_quant_scale();
}

}  // namespace

GateUp::GateUp(const Context& ctx, const ComputeMode& mode, HostWeights gate, HostWeights up) {
  if (mode.act != ActMode::kF32 && share_an_op(gate, up)) {
    if (up.decided != gate.decided) gate.decided += "; " + up.decided;
    if (up.stored != gate.stored) gate.stored += "; up: " + up.stored;
    gate.joined = "gate and up interleaved in one op, SiLU-mul in its epilogue";
    input_ = ScaledInput(gate.pre_quant_scale());
    fused_ = make_gate_up_op(ctx, mode, std::move(gate), std::move(up));
    return;
  }
  gate.joined = up.joined =
      mode.act == ActMode::kF32 ? "gate and up apart: f32 activations have no SiLU-mul epilogue"
      : gate.int4 && up.int4
          ? "gate and up apart: up is " + difference(gate.int4->form, up.int4->form)
      : gate.pre_quant_scale() != up.pre_quant_scale()
          ? "gate and up apart: each has a pre_quant_scale of its own"
          : "gate and up apart: the gate is " + gate.stored + ", up is " + up.stored;
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

void GateUp::run(ModelOps& ops, OpSite site, const LinearArgs& args) {
  if (fused_) {
    LinearArgs scaled = args;
    scaled.a = input_.of(ops, site, args.a);
    ops.linear(site, *fused_, scaled);
    return;
  }
  const MutableMatrixView& c = args.c;
  gate_out_.resize(c.dtype, c.rows, c.cols);
  up_out_.resize(c.dtype, c.rows, c.cols);
  gate_.run(ops, site, {args.a, gate_out_.mutable_view(), args.scratch});
  up_.run(ops, site, {args.a, up_out_.mutable_view(), args.scratch});
  ops.silu_mul(site, gate_out_.view(), up_out_.view(), c);
}

std::vector<const LinearOp*> GateUp::ops() const {
  if (fused_) return {fused_.get()};
  std::vector<const LinearOp*> out = gate_.ops();
  for (const LinearOp* op : up_.ops()) out.push_back(op);
  return out;
}

}  // namespace quern::smoke
