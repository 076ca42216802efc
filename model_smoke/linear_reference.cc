#include <algorithm>
#include <utility>

#include "model_smoke/linear_ops.h"
#include "reference/bf16_gemm.h"
#include "reference/int8_gemm.h"
#include "reference/linear.h"

namespace quern::smoke {
namespace {

/// Elements [first, first + n) of what belongs to the rows of a weight matrix.
VectorView slice(VectorView v, int64_t first, int64_t n) {
  if (v.data == nullptr || v.size == 0) return {};
  v.data = static_cast<const std::byte*>(v.data) + static_cast<size_t>(first) * size_of(v.dtype);
  v.size = n;
  return v;
}

/// Runs f(first, n) over slices of the output columns on the pool's threads: every element is
/// computed alone, so the cut changes no bit. f returns a Status.
template <typename F>
void for_columns(ThreadPool& pool, int64_t n, const std::string& name, F&& f) {
  constexpr int64_t kColumns = 32;
  const int64_t slices = (n + kColumns - 1) / kColumns;
  std::vector<Status> status(static_cast<size_t>(slices));
  LayerExec exec(pool, LayerImpl::kScalar);
  exec.for_each(slices, 0, [&](int64_t s, float*) {
    const int64_t first = s * kColumns;
    status[static_cast<size_t>(s)] = f(first, std::min(kColumns, n - first));
  });
  for (const Status& s : status) check(s, name);
}

/// f32 activations on exactly dequantized weights.
class ReferenceF32 final : public LinearOp {
 public:
  ReferenceF32(const Context& ctx, HostWeights w, const LinearOutput& output)
      : ctx_(ctx),
        name_(w.name),
        weights_(w.dequantized()),
        bias_(std::move(w.bias)),
        residual_(output.residual) {}

  size_t scratch_bytes(int64_t max_m) const override {
    return residual_ ? static_cast<size_t>(max_m * weights_.rows()) * sizeof(float) : 0;
  }

  void run(MatrixView a, MutableMatrixView c, Span<std::byte> scratch) const override {
    MutableMatrixView product = c;
    if (residual_)
      product = mutable_matrix_view(reinterpret_cast<float*>(scratch.data()), c.rows, c.cols);
    const VectorView bias = vector_view(bias_.data(), static_cast<int64_t>(bias_.size()));
    for_columns(ctx_.pool(), c.cols, name_, [&](int64_t first, int64_t n) {
      return reference::linear({.a = a,
                                .weights = rows_of(weights_.view(), first, n),
                                .bias = slice(bias, first, n),
                                .c = columns(product, first, n)});
    });
    for (int64_t r = 0; residual_ && r < c.rows; ++r) {
      float* sum = static_cast<float*>(c.data) + r * c.row_stride;
      const float* add = static_cast<const float*>(product.data) + r * product.row_stride;
      for (int64_t i = 0; i < c.cols; ++i) sum[i] += add[i];
    }
  }

  std::string describe() const override {
    return "reference linear n " + std::to_string(weights_.rows()) + " k " +
           std::to_string(weights_.cols()) + " (act f32)";
  }
  std::string explain() const override { return {}; }
  size_t weight_bytes() const override {
    return static_cast<size_t>(weights_.rows() * weights_.cols()) * sizeof(float);
  }

 private:
  Context ctx_;
  std::string name_;
  Tensor weights_;
  std::vector<float> bias_;
  bool residual_;
};

/// The reference ops with the ops' own contract: bf16 in, the epilogue, one rounding.
class ReferenceGemm final : public LinearOp {
 public:
  ReferenceGemm(const Context& ctx, const ComputeMode& mode, HostWeights w, HostWeights up,
                const LinearOutput& output)
      : ctx_(ctx), mode_(mode), weights_(std::move(w)), up_(std::move(up)), output_(output) {}

  size_t scratch_bytes(int64_t) const override { return 0; }

  void run(MatrixView a, MutableMatrixView c, Span<std::byte>) const override {
    for_columns(ctx_.pool(), c.cols, weights_.name, [&](int64_t first, int64_t n) {
      std::vector<float> bias;
      append_bias(weights_, first, n, bias);
      if (gated()) append_bias(up_, first, n, bias);
      const Epilogue epilogue{.bias = !bias.empty(),
                              .activation = gated() ? Activation::kSiluMul : Activation::kNone,
                              .residual = output_.residual};
      return weights_.format == ModuleFormat::kInt8
                 ? run_int8(a, columns(c, first, n), epilogue, bias, first, n)
                 : run_bf16(a, columns(c, first, n), epilogue, bias, first, n);
    });
  }

  std::string describe() const override {
    const bool int8 = weights_.format == ModuleFormat::kInt8;
    return std::string("reference ") + (int8 ? "int8_gemm" : "bf16_gemm") +
           (gated() ? "+silu_mul" : "") + " n " + std::to_string(weights_.n()) + " k " +
           std::to_string(weights_.k()) + " (act " + (int8 ? to_string(mode_.act) : "bf16") + ")";
  }
  std::string explain() const override { return {}; }
  size_t weight_bytes() const override {
    const int64_t rows = weights_.n() + (gated() ? up_.n() : 0);
    return static_cast<size_t>(rows * weights_.k()) * size_of(weights_.values.dtype());
  }

 private:
  bool gated() const { return up_.values.rows() > 0; }

  static void append_bias(const HostWeights& w, int64_t first, int64_t n, std::vector<float>& to) {
    if (!w.bias.empty()) {
      to.insert(to.end(), w.bias.begin() + first, w.bias.begin() + first + n);
    }
  }

  Status run_bf16(MatrixView a, MutableMatrixView c, const Epilogue& epilogue,
                  const std::vector<float>& bias, int64_t first, int64_t n) const {
    Bf16GemmDesc desc;
    desc.n = n;
    desc.k = weights_.k();
    desc.c = c.dtype;
    desc.epilogue = epilogue;
    reference::Bf16GemmArgs args;
    args.a = a;
    args.weights = rows_of(weights_.values.view(), first, n);
    if (gated()) args.up_weights = rows_of(up_.values.view(), first, n);
    args.c = c;
    args.bias = vector_view(bias.data(), static_cast<int64_t>(bias.size()));
    if (epilogue.residual) args.residual = c;
    return reference::bf16_gemm(desc, args);
  }

  Status run_int8(MatrixView a, MutableMatrixView c, const Epilogue& epilogue,
                  const std::vector<float>& bias, int64_t first, int64_t n) const {
    Int8GemmDesc desc;
    desc.n = n;
    desc.k = weights_.k();
    desc.activations = int8_activations(mode_);
    desc.a = DType::kBF16;
    desc.c = c.dtype;
    desc.epilogue = epilogue;
    const auto part = [&](const HostWeights& w) {
      return Int8Weights{.codes = rows_of(w.values.view(), first, n),
                         .scale = slice(w.scale_view(), first, n)};
    };
    reference::Int8GemmArgs args;
    args.a = a;
    args.weights = part(weights_);
    if (gated()) args.up_weights = part(up_);
    args.c = c;
    args.bias = vector_view(bias.data(), static_cast<int64_t>(bias.size()));
    if (epilogue.residual) args.residual = c;
    return reference::int8_gemm(desc, args);
  }

  Context ctx_;
  ComputeMode mode_;
  HostWeights weights_, up_;
  LinearOutput output_;
};

}  // namespace

std::unique_ptr<LinearOp> make_reference_linear(const Context& ctx, const ComputeMode& mode,
                                                HostWeights weights, const LinearOutput& output) {
  if (mode.act == ActMode::kF32) {
    return std::make_unique<ReferenceF32>(ctx, std::move(weights), output);
  }
  return std::make_unique<ReferenceGemm>(ctx, mode, std::move(weights), HostWeights{}, output);
}

std::unique_ptr<LinearOp> make_reference_gate_up(const Context& ctx, const ComputeMode& mode,
                                                 HostWeights gate, HostWeights up) {
  return std::make_unique<ReferenceGemm>(ctx, mode, std::move(gate), std::move(up), LinearOutput{});
}

}  // namespace quern::smoke
