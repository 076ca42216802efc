#include <utility>

#include "model_smoke/linear_ops.h"
#include "model_smoke/reference_slice.h"
#include "reference/int4_weights.h"
#include "reference/linear.h"
#include "reference/numeric.h"

namespace quern::smoke {
namespace {

/// As for_column_slices, with f returning a Status.
template <typename F>
void for_columns(ThreadPool& pool, int64_t n, const std::string& name, F&& f) {
  std::vector<Status> status(static_cast<size_t>(column_slices(n)));
  for_column_slices(pool, n, [&](int64_t s, int64_t first, int64_t count) {
    status[static_cast<size_t>(s)] = f(first, count);
  });
  for (const Status& s : status) check(s, name);
}

Tensor dequantized_int4(const HostInt4& w) {
  Int4GemmDesc desc;
  desc.n = w.n;
  desc.k = w.k;
  describe_weights(w, desc);
  const reference::Int4Values values = reference::int4_values(w.view(), desc);
  Tensor out(DType::kF32, w.n, w.k);
  for (int64_t r = 0; r < w.n; ++r) {
    for (int64_t c = 0; c < w.k; ++c) out.row<float>(r)[c] = values.weight(r, c);
  }
  return out;
}

Tensor dequantized_fp8(const HostFp8& w) {
  Tensor out(DType::kF32, w.n, w.k);
  const MatrixView codes = w.codes.view(), scale = w.row_scale.view();
  for (int64_t r = 0; r < w.n; ++r) {
    for (int64_t c = 0; c < w.k; ++c) {
      const int64_t block = w.form.block_k < 0 ? 0 : c / w.form.block_k;
      out.row<float>(r)[c] = static_cast<float>(reference::load(codes, r, c)) *
                             static_cast<float>(reference::load(scale, r, block));
    }
  }
  return out;
}

Tensor dequantized_fp4(const HostFp4& w) {
  Tensor out(DType::kF32, w.n, w.k);
  const MatrixView codes = w.codes.view(), scale = w.scale.view();
  const bool divides = w.form.global_is == Fp4Global::kDivisor;
  const float global = divides ? 1.0f / w.form.global : w.form.global;
  for (int64_t r = 0; r < w.n; ++r) {
    for (int64_t c = 0; c < w.k; ++c) {
      const int pair = static_cast<int>(reference::load(codes, r, c / 2));
      const auto code = static_cast<uint8_t>(c % 2 == 0 ? pair & 15 : pair >> 4);
      const double exact =
          reference::e2m1_to_double(code) * reference::load(scale, r, c / kNvfp4Block);
      out.row<float>(r)[c] = static_cast<float>(exact) * global;
    }
  }
  return out;
}

/// What the codes stand for, in f32: a code, less its zero, times its scale is one f32 product; of
/// NVFP4 the product of code and block scale is exact, and the global scale is the one that rounds.
Tensor dequantized(const HostWeights& w) {
  if (w.int4) return dequantized_int4(*w.int4);
  if (w.fp8) return dequantized_fp8(*w.fp8);
  if (w.fp4) return dequantized_fp4(*w.fp4);
  Tensor out(DType::kF32, w.n(), w.k());
  for (int64_t r = 0; r < w.n(); ++r) {
    float* row = out.row<float>(r);
    for (int64_t c = 0; c < w.k(); ++c) {
      switch (w.values.dtype()) {
        case DType::kBF16:
          row[c] = w.values.row<bfloat16>(r)[c].to_float();
          break;
        case DType::kS8:
          row[c] = static_cast<float>(w.values.row<int8_t>(r)[c]) * w.scale[static_cast<size_t>(r)];
          break;
        default:
          row[c] = w.values.row<float>(r)[c];
      }
    }
  }
  return out;
}

/// f32 activations on exactly dequantized weights.
class ReferenceF32 final : public LinearOp {
 public:
  ReferenceF32(const Context& ctx, const LinearSource& source)
      : LinearOp(source.name()),
        ctx_(ctx),
        weights_(dequantized(source.weights)),
        bias_(source.weights.bias),
        residual_(source.output.residual) {}

  size_t scratch_bytes(int64_t max_m) const override {
    return residual_ ? static_cast<size_t>(max_m * weights_.rows()) * sizeof(float) : 0;
  }

  void run(MatrixView a, MutableMatrixView c, Span<std::byte> scratch) const override {
    MutableMatrixView product = c;
    if (residual_)
      product = mutable_matrix_view(reinterpret_cast<float*>(scratch.data()), c.rows, c.cols);
    const VectorView bias = vector_view(bias_.data(), static_cast<int64_t>(bias_.size()));
    for_columns(ctx_.pool(), c.cols, name(), [&](int64_t first, int64_t n) {
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
  Tensor weights_;
  std::vector<float> bias_;
  bool residual_;
};

Status run_op(const Bf16GemmDesc& desc, const reference::Bf16GemmArgs& args) {
  return reference::bf16_gemm(desc, args);
}
Status run_op(const Int8GemmDesc& desc, const reference::Int8GemmArgs& args) {
  return reference::int8_gemm(desc, args);
}
Status run_op(const Fp8GemmDesc& desc, const reference::Fp8GemmArgs& args) {
  return reference::fp8_gemm(desc, args);
}
Status run_op(const Fp4GemmDesc& desc, const reference::Fp4GemmArgs& args) {
  return reference::fp4_gemm(desc, args);
}
Status run_op(const Int4GemmDesc& desc, const reference::Int4GemmArgs& args) {
  return reference::int4_gemm(desc, args);
}

/// The reference ops with the ops' own contract: bf16 in, the epilogue, one rounding.
class ReferenceGemm final : public LinearOp {
 public:
  ReferenceGemm(const Context& ctx, LinearSource source)
      : LinearOp(source.name()), ctx_(ctx), source_(std::move(source)) {}

  size_t scratch_bytes(int64_t) const override { return 0; }

  void run(MatrixView a, MutableMatrixView c, Span<std::byte>) const override {
    for_columns(ctx_.pool(), c.cols, name(), [&](int64_t first, int64_t n) {
      const MutableMatrixView part = columns(c, first, n);
      return with_reference_op(
          source_, {first, n, a, part, part},
          [](const auto& desc, const auto& args) { return run_op(desc, args); });
    });
  }

  std::string describe() const override {
    return std::string("reference ") + op_name(source_.weights.format) +
           (source_.gated() ? "+silu_mul" : "") + " n " + std::to_string(source_.weights.n()) +
           " k " + std::to_string(source_.weights.k()) + " (act " + act_name(source_) + ")";
  }
  std::string explain() const override { return {}; }
  size_t weight_bytes() const override {
    return source_.weights.bytes() + (source_.gated() ? source_.up.bytes() : 0);
  }

 private:
  Context ctx_;
  LinearSource source_;
};

}  // namespace

std::unique_ptr<LinearOp> make_reference_op(const Context& ctx, LinearSource source) {
  if (source.mode.act == ActMode::kF32) return std::make_unique<ReferenceF32>(ctx, source);
  return std::make_unique<ReferenceGemm>(ctx, std::move(source));
}

}  // namespace quern::smoke
