#include "ops/row_quantizer.h"

#include "jit/quantize_rows_avx512.h"
#include "ops/validate.h"

namespace quern::inline v0 {

QuantizedRows::QuantizedRows(int64_t rows, int64_t k, int threads) noexcept : m(rows) {
  if (threads == 0) return;
  // One line more than the padded row: rows at a power-of-two distance would meet in one L1 set.
  q_stride = (k + kPad - 1) / kPad * kPad + 64;
  copies = rows <= kRowsForEachThread ? threads : 1;
}

void QuantizedRows::quantize(const jit::Kernel& kernel, const MatrixView& a, Range rows,
                             int copy) const noexcept {
  if (rows.size() == 0) return;
  std::byte* to = memory + copy * copy_bytes();
  jit::QuantizeRowsArgs args;
  args.a_stride = row_step(a);
  args.a = static_cast<const std::byte*>(a.data) + rows.begin * args.a_stride;
  args.rows = rows.size();
  args.k = a.cols;
  args.group = a.cols > 0 ? a.cols : 1;
  args.q = reinterpret_cast<int8_t*>(to + rows.begin * q_stride);
  args.q_stride = q_stride;
  args.scale = reinterpret_cast<float*>(to + m * q_stride) + rows.begin;
  args.sums = reinterpret_cast<int32_t*>(to + m * q_stride + number_bytes()) + rows.begin;
  args.sum_stride = 4;
  kernel.call(args);
}

}  // namespace quern::inline v0
