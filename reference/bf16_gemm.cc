#include "reference/bf16_gemm.h"

#include "reference/dot_products.h"
#include "reference/shape_check.h"

namespace quern::reference {

Exact bf16_gemm_exact(const Bf16GemmDesc& desc, const Bf16GemmArgs& args) {
  const Epilogue& e = desc.epilogue;
  const bool silu_mul = e.activation == Activation::kSiluMul;
  const DotProducts gate = dot_products(args.a, args.weights);
  const DotProducts up = silu_mul ? dot_products(args.a, args.up_weights) : DotProducts();

  Exact out{args.a.rows, desc.n, {}};
  out.element.resize(static_cast<size_t>(out.rows * out.cols));
  for (int64_t i = 0; i < out.rows; ++i) {
    for (int64_t j = 0; j < out.cols; ++j) {
      const size_t at = static_cast<size_t>(i * out.cols + j);
      Bounded t = f32_chain(gate.value[at], gate.magnitude[at], desc.k);
      if (e.bias) t = plus(t, load(args.bias, j));
      if (silu_mul) {
        Bounded u = f32_chain(up.value[at], up.magnitude[at], desc.k);
        if (e.bias) u = plus(u, load(args.bias, desc.n + j));
        t = silu_times(t, u);
      }
      if (e.residual) t = plus(t, load(args.residual, i, j));
      out.element[at] = t;
    }
  }
  return out;
}

Status bf16_gemm(const Bf16GemmDesc& desc, const Bf16GemmArgs& args) {
  const bool silu_mul = desc.epilogue.activation == Activation::kSiluMul;
  Status s =
      expect(args.a.cols == desc.k, "a.cols ({0}) must equal desc.k ({1})", args.a.cols, desc.k);
  if (s.ok()) {
    const MatrixView& w = args.weights;
    const MatrixView& u = silu_mul ? args.up_weights : args.weights;
    s = expect(w.rows == desc.n && w.cols == desc.k && u.rows == desc.n && u.cols == desc.k,
               "weights must be [desc.n ({0}), desc.k ({1})]", desc.n, desc.k);
  }
  if (s.ok()) {
    s = check_epilogue(desc.epilogue, args.a.rows, desc.n, args.c, args.bias, args.residual);
  }
  if (!s.ok()) return s;

  store_output(args.c, bf16_gemm_exact(desc, args));
  return s;
}

}  // namespace quern::reference
