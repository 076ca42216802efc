#include <utility>

#include "model_smoke/linear_ops.h"
#include "quern/bf16_gemm.h"
#include "quern/fp4_gemm.h"
#include "quern/fp8_gemm.h"
#include "quern/int4_gemm.h"
#include "quern/int8_gemm.h"

namespace quern::smoke {
namespace {

/// Gemm: Bf16Gemm, Int8Gemm, Int4Gemm, Fp8Gemm or Fp4Gemm, with its argument struct.
template <typename Gemm, typename GemmArgs>
class JitOp final : public LinearOp {
 public:
  JitOp(std::string name, std::string description, Gemm gemm, PackedWeights weights,
        std::vector<float> bias)
      : LinearOp(std::move(name)),
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
    check(gemm_.run(args, scratch), name());
  }

  std::string describe() const override { return description_; }
  std::string explain() const override { return gemm_.explain(); }
  size_t weight_bytes() const override { return weights_.bytes(); }
  std::string layout() const override { return to_string(weights_.layout()); }

 private:
  std::string description_;
  Gemm gemm_;
  PackedWeights weights_;
  std::vector<float> bias_;
};
using JitBf16 = JitOp<Bf16Gemm, Bf16GemmArgs>;
using JitInt8 = JitOp<Int8Gemm, Int8GemmArgs>;
using JitInt4 = JitOp<Int4Gemm, Int4GemmArgs>;
using JitFp8 = JitOp<Fp8Gemm, Fp8GemmArgs>;
using JitFp4 = JitOp<Fp4Gemm, Fp4GemmArgs>;

Int8Weights int8_view(const HostWeights& w) {
  return {.codes = w.values.view(), .scale = w.scale_view()};
}

Epilogue epilogue_of(const LinearSource& s) {
  return {.bias = !s.weights.bias.empty() || !s.up.bias.empty(),
          .activation = s.gated() ? Activation::kSiluMul : Activation::kNone,
          .residual = s.output.residual};
}

/// Gate's biases, then up's, as the op wants them; empty when there are none.
std::vector<float> joined_bias(const LinearSource& s) {
  std::vector<float> bias = s.weights.bias;
  bias.insert(bias.end(), s.up.bias.begin(), s.up.bias.end());
  return bias;
}

/// Desc with what all ops have in common.
template <typename Desc>
Desc desc_of(const LinearSource& s) {
  Desc desc;
  desc.n = s.weights.n();
  desc.k = s.weights.k();
  desc.c = s.output.dtype;
  desc.epilogue = epilogue_of(s);
  return desc;
}

std::unique_ptr<LinearOp> make_int8(const Context& ctx, const std::string& name,
                                    const LinearSource& s) {
  Int8GemmDesc desc = desc_of<Int8GemmDesc>(s);
  desc.activations = int8_activations(s.mode);
  desc.a = DType::kBF16;
  Int8Gemm gemm = take(Int8Gemm::create(ctx, desc), name);
  PackedWeights packed = take(s.gated() ? gemm.pack_gate_up(int8_view(s.weights), int8_view(s.up))
                                        : gemm.pack(int8_view(s.weights)),
                              name);
  return std::make_unique<JitInt8>(name, describe_jit_op(s), std::move(gemm), std::move(packed),
                                   joined_bias(s));
}

std::unique_ptr<LinearOp> make_int4(const Context& ctx, const std::string& name,
                                    const LinearSource& s) {
  Int4GemmDesc desc = desc_of<Int4GemmDesc>(s);
  describe_weights(*s.weights.int4, desc);
  desc.activations = int4_activations(s.mode);
  Int4Gemm gemm = take(Int4Gemm::create(ctx, desc), name);
  PackProgress progress;
  if (s.mode.packing != nullptr) progress = s.mode.packing->of(name);
  PackedWeights packed =
      take(s.gated() ? gemm.pack_gate_up(s.weights.int4->view(), s.up.int4->view(), progress)
                     : gemm.pack(s.weights.int4->view(), progress),
           name);
  return std::make_unique<JitInt4>(name, describe_jit_op(s), std::move(gemm), std::move(packed),
                                   joined_bias(s));
}

std::unique_ptr<LinearOp> make_fp8(const Context& ctx, const std::string& name,
                                   const LinearSource& s) {
  Fp8GemmDesc desc = desc_of<Fp8GemmDesc>(s);
  desc.weights = DType::kE4M3;
  desc.block_n = s.weights.fp8->form.block_n;
  desc.block_k = s.weights.fp8->form.block_k;
  Fp8Gemm gemm = take(Fp8Gemm::create(ctx, desc), name);
  PackedWeights packed = take(s.gated() ? gemm.pack_gate_up(s.weights.fp8->view(), s.up.fp8->view())
                                        : gemm.pack(s.weights.fp8->view()),
                              name);
  return std::make_unique<JitFp8>(name, describe_jit_op(s), std::move(gemm), std::move(packed),
                                  joined_bias(s));
}

std::unique_ptr<LinearOp> make_fp4(const Context& ctx, const std::string& name,
                                   const LinearSource& s) {
  Fp4GemmDesc desc = desc_of<Fp4GemmDesc>(s);
  desc.format = Fp4Format::kNvfp4;
  Fp4Gemm gemm = take(Fp4Gemm::create(ctx, desc), name);
  PackedWeights packed = take(s.gated() ? gemm.pack_gate_up(s.weights.fp4->view(), s.up.fp4->view())
                                        : gemm.pack(s.weights.fp4->view()),
                              name);
  return std::make_unique<JitFp4>(name, describe_jit_op(s), std::move(gemm), std::move(packed),
                                  joined_bias(s));
}

std::unique_ptr<LinearOp> make_bf16(const Context& ctx, const std::string& name,
                                    const LinearSource& s) {
  Bf16Gemm gemm = take(Bf16Gemm::create(ctx, desc_of<Bf16GemmDesc>(s)), name);
  PackedWeights packed =
      take(s.gated() ? gemm.pack_gate_up(s.weights.values.view(), s.up.values.view())
                     : gemm.pack(s.weights.values.view()),
           name);
  return std::make_unique<JitBf16>(name, describe_jit_op(s), std::move(gemm), std::move(packed),
                                   joined_bias(s));
}

}  // namespace

std::string describe_jit_op(const LinearSource& s) {
  return std::string(op_name(s.weights.format)) + (s.gated() ? "+silu_mul" : "") + " n " +
         std::to_string(s.weights.n()) + " k " + std::to_string(s.weights.k()) + " (act " +
         act_name(s) + ")";
}

std::unique_ptr<LinearOp> make_jit_op(const Context& ctx, LinearSource source) {
  const std::string name = source.name();
  switch (source.weights.format) {
    case ModuleFormat::kInt8:
      return make_int8(ctx, name, source);
    case ModuleFormat::kInt4:
      return make_int4(ctx, name, source);
    case ModuleFormat::kFp8:
      return make_fp8(ctx, name, source);
    case ModuleFormat::kFp4:
      return make_fp4(ctx, name, source);
    case ModuleFormat::kPlain:
      break;
  }
  return make_bf16(ctx, name, source);
}

}  // namespace quern::smoke
