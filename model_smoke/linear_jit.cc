#include <utility>

#include "model_smoke/linear_ops.h"
#include "quern/bf16_gemm.h"
#include "quern/int8_gemm.h"

namespace quern::smoke {
namespace {

std::string shape_text(const char* op, int64_t n, int64_t k, const char* act) {
  return std::string(op) + " n " + std::to_string(n) + " k " + std::to_string(k) + " (act " + act +
         ")";
}

/// Gemm: Bf16Gemm or Int8Gemm, with its argument struct.
template <typename Gemm, typename GemmArgs>
class JitOp final : public LinearOp {
 public:
  JitOp(std::string name, std::string description, Gemm gemm, PackedWeights weights,
        std::vector<float> bias)
      : name_(std::move(name)),
        description_(std::move(description)),
        gemm_(std::move(gemm)),
        weights_(std::move(weights)),
        bias_(std::move(bias)) {}

  size_t scratch_bytes(int64_t max_m) const override { return gemm_.scratch_bytes(max_m); }

  void run(MatrixView a, MutableMatrixView c, Span<std::byte> scratch) const override {
    GemmArgs args;
    args.a = a;
    args.weights = &weights_;
    args.c = c;
    if (gemm_.desc().epilogue.bias) {
      args.bias = vector_view(bias_.data(), static_cast<int64_t>(bias_.size()));
    }
    if (gemm_.desc().epilogue.residual) args.residual = c;
    check(gemm_.run(args, scratch), name_);
  }

  std::string describe() const override { return description_; }
  std::string explain() const override { return gemm_.explain(); }
  size_t weight_bytes() const override { return weights_.bytes(); }

 private:
  std::string name_, description_;
  Gemm gemm_;
  PackedWeights weights_;
  std::vector<float> bias_;
};
using JitBf16 = JitOp<Bf16Gemm, Bf16GemmArgs>;
using JitInt8 = JitOp<Int8Gemm, Int8GemmArgs>;

Int8Weights int8_view(const HostWeights& w) {
  return {.codes = w.values.view(), .scale = w.scale_view()};
}

Epilogue epilogue_of(const HostWeights& w, const LinearOutput& output) {
  return {.bias = !w.bias.empty(), .activation = Activation::kNone, .residual = output.residual};
}

/// Gate's biases, then up's, as the op wants them; empty when there are none.
std::vector<float> joined_bias(const HostWeights& gate, const HostWeights& up) {
  std::vector<float> bias = gate.bias;
  bias.insert(bias.end(), up.bias.begin(), up.bias.end());
  return bias;
}

Int8GemmDesc int8_desc(const ComputeMode& mode, const HostWeights& w) {
  Int8GemmDesc desc;
  desc.n = w.n();
  desc.k = w.k();
  desc.activations = int8_activations(mode);
  desc.a = DType::kBF16;
  return desc;
}

}  // namespace

std::unique_ptr<LinearOp> make_jit_linear(const Context& ctx, const ComputeMode& mode,
                                          HostWeights w, const LinearOutput& output) {
  if (w.format == ModuleFormat::kInt8) {
    Int8GemmDesc desc = int8_desc(mode, w);
    desc.c = output.dtype;
    desc.epilogue = epilogue_of(w, output);
    Int8Gemm gemm = take(Int8Gemm::create(ctx, desc), w.name);
    PackedWeights packed = take(gemm.pack(int8_view(w)), w.name);
    return std::make_unique<JitInt8>(w.name,
                                     shape_text("int8_gemm", w.n(), w.k(), to_string(mode.act)),
                                     std::move(gemm), std::move(packed), std::move(w.bias));
  }
  Bf16GemmDesc desc;
  desc.n = w.n();
  desc.k = w.k();
  desc.c = output.dtype;
  desc.epilogue = epilogue_of(w, output);
  Bf16Gemm gemm = take(Bf16Gemm::create(ctx, desc), w.name);
  PackedWeights packed = take(gemm.pack(w.values.view()), w.name);
  return std::make_unique<JitBf16>(w.name, shape_text("bf16_gemm", w.n(), w.k(), "bf16"),
                                   std::move(gemm), std::move(packed), std::move(w.bias));
}

std::unique_ptr<LinearOp> make_jit_gate_up(const Context& ctx, const ComputeMode& mode,
                                           HostWeights gate, HostWeights up) {
  const std::string name = gate.name + "+" + up.name;
  std::vector<float> bias = joined_bias(gate, up);
  const Epilogue epilogue{.bias = !bias.empty(), .activation = Activation::kSiluMul};
  if (gate.format == ModuleFormat::kInt8) {
    Int8GemmDesc desc = int8_desc(mode, gate);
    desc.epilogue = epilogue;
    Int8Gemm gemm = take(Int8Gemm::create(ctx, desc), name);
    PackedWeights packed = take(gemm.pack_gate_up(int8_view(gate), int8_view(up)), name);
    return std::make_unique<JitInt8>(
        name, shape_text("int8_gemm+silu_mul", gate.n(), gate.k(), to_string(mode.act)),
        std::move(gemm), std::move(packed), std::move(bias));
  }
  Bf16GemmDesc desc;
  desc.n = gate.n();
  desc.k = gate.k();
  desc.epilogue = epilogue;
  Bf16Gemm gemm = take(Bf16Gemm::create(ctx, desc), name);
  PackedWeights packed = take(gemm.pack_gate_up(gate.values.view(), up.values.view()), name);
  return std::make_unique<JitBf16>(name,
                                   shape_text("bf16_gemm+silu_mul", gate.n(), gate.k(), "bf16"),
                                   std::move(gemm), std::move(packed), std::move(bias));
}

}  // namespace quern::smoke
