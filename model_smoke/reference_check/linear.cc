#include <vector>

#include "model_smoke/layers/exec.h"
#include "model_smoke/reference_check/checks.h"
#include "model_smoke/reference_check/element_check.h"
#include "model_smoke/reference_slice.h"
#include "reference/numeric.h"

namespace quern::smoke {
namespace {

reference::Exact exact_of(const Bf16GemmDesc& desc, const reference::Bf16GemmArgs& args) {
  return reference::bf16_gemm_exact(desc, args);
}
reference::Exact exact_of(const Int8GemmDesc& desc, const reference::Int8GemmArgs& args) {
  return reference::int8_gemm_exact(desc, args);
}
reference::Exact exact_of(const Fp8GemmDesc& desc, const reference::Fp8GemmArgs& args) {
  return reference::fp8_gemm_exact(desc, args);
}
reference::Exact exact_of(const Fp4GemmDesc& desc, const reference::Fp4GemmArgs& args) {
  return reference::fp4_gemm_exact(desc, args);
}
reference::Exact exact_of(const Int4GemmDesc& desc, const reference::Int4GemmArgs& args) {
  return reference::int4_gemm_exact(desc, args);
}

}  // namespace

/// The bounds are the oracle's own (reference/exact.h): 0 for W8A8 and W4A8, so every bit counts;
/// the bound of one f32 chain for bf16, W8A16 and NVFP4, of one a group for W4A16 and fp8; that of
/// silu where gate and up are multiplied.
Comparison check_linear(ThreadPool& pool, const LinearSource& source, MatrixView a,
                        MatrixView residual, MatrixView c) {
  std::vector<Comparison> part(static_cast<size_t>(column_slices(c.cols)));
  for_column_slices(pool, c.cols, [&](int64_t s, int64_t first, int64_t n) {
    LinearSlice slice{.first = first, .n = n, .a = a, .c = {}, .residual = {}};
    slice.c = {nullptr, c.dtype, c.rows, n, n};  // only its type and shape are read
    if (source.output.residual) slice.residual = columns(residual, first, n);
    const reference::Exact exact = with_reference_op(
        source, slice, [](const auto& desc, const auto& args) { return exact_of(desc, args); });
    ElementCheck check(c.dtype, OutputRounding::kInstruction);
    for (int64_t row = 0; row < c.rows; ++row) {
      for (int64_t col = 0; col < n; ++col) {
        check.add(row, first + col, reference::load(c, row, first + col), exact.at(row, col));
      }
    }
    part[static_cast<size_t>(s)] = check.result();
  });
  Comparison whole;
  for (const Comparison& p : part) whole.merge(p);
  return whole;
}

}  // namespace quern::smoke
