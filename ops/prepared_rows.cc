#include "ops/prepared_rows.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>

#include "jit/quantize_rows_avx512.h"
#include "ops/checked.h"
#include "ops/validate.h"

namespace quern::inline v0 {
namespace {

// A kernel of four depths a step reads that many elements of a row.
constexpr int64_t kWidePad = 4;

constexpr int64_t kLine = 64;
constexpr int64_t kL1WayBytes = 4096;
constexpr int64_t kMostRowsInASet = 11;

int64_t row_bytes(RowPreparation kind, int64_t k) noexcept {
  switch (kind) {
    case RowPreparation::kQuantize:
      return (k + PreparedRows::kPad - 1) / PreparedRows::kPad * PreparedRows::kPad;
    case RowPreparation::kWiden:
      return ((k + kWidePad - 1) / kWidePad * kWidePad * 4 + 63) / 64 * 64;
    case RowPreparation::kSpread:
    case RowPreparation::kGather:
      return k * 2;
    case RowPreparation::kNone:
      break;
  }
  return 0;
}

}  // namespace

bool meet_in_l1(int64_t row_step, int64_t rows) noexcept {
  return row_step % kL1WayBytes == 0 && rows > kMostRowsInASet;
}

PreparedRows::PreparedRows(RowPreparation kind, int64_t rows, int64_t k, int threads,
                           const RowGroups& groups) noexcept
    : kind_(kind), m_(rows), k_(k), groups_(groups) {
  if (kind == RowPreparation::kNone) return;
  if (grouped()) k = groups.layout.depth();
  // An odd number of lines: as many rows as there are sets in L1 lie in different ones.
  stride_ = (ceil_div(row_bytes(kind, k), kLine) | 1) * kLine;
  copies_ = rows <= kRowsForEachThread ? threads : 1;
}

void PreparedRows::prepare(const jit::Kernel* quantizer, const MatrixView& a, Range which,
                           int copy) const noexcept {
  if (which.size() == 0) return;
  std::byte* to = memory_ + copy * copy_bytes();
  switch (kind_) {
    case RowPreparation::kQuantize:
      return grouped() ? quantize_groups(*quantizer, a, which, to)
                       : quantize(*quantizer, a, which, to);
    case RowPreparation::kWiden:
      return grouped() ? gather(a, which, to) : widen(a, which, to);
    case RowPreparation::kGather:
      return gather(a, which, to);
    case RowPreparation::kSpread:
      return spread(a, which, to);
    case RowPreparation::kNone:
      return;
  }
}

void PreparedRows::quantize(const jit::Kernel& kernel, const MatrixView& a, Range which,
                            std::byte* to) const noexcept {
  jit::QuantizeRowsArgs args;
  args.a_stride = row_step(a);
  args.a = static_cast<const std::byte*>(a.data) + which.begin * args.a_stride;
  args.rows = which.size();
  args.k = a.cols;
  args.group = a.cols > 0 ? a.cols : 1;
  args.q = reinterpret_cast<int8_t*>(to + which.begin * stride_);
  args.q_stride = stride_;
  args.scale = reinterpret_cast<float*>(to + m_ * stride_) + which.begin;
  args.sums = reinterpret_cast<int32_t*>(to + m_ * stride_ + number_bytes()) + which.begin;
  args.sum_stride = 4;
  kernel.call(args);
}

void PreparedRows::widen(const MatrixView& a, Range which, std::byte* to) const noexcept {
  for (int64_t m = which.begin; m < which.end; ++m) {
    const std::byte* from = static_cast<const std::byte*>(a.data) + m * row_step(a);
    auto* row = reinterpret_cast<uint32_t*>(to + m * stride_);
    // Bits, not floats: a signalling NaN must arrive as it is. Copied, because operands need no
    // alignment.
    for (int64_t i = 0; i < a.cols; ++i) {
      uint16_t bits;
      std::memcpy(&bits, from + 2 * i, sizeof bits);
      row[i] = uint32_t{bits} << 16;
    }
    std::fill_n(row + a.cols, (kWidePad - a.cols % kWidePad) % kWidePad, 0u);
  }
}

// A line at a time, and the same line of a row further on is fetched: rows that are spread lie in
// pages of their own, where no hardware prefetcher has begun yet (20 against 26 GB/s).
void PreparedRows::spread(const MatrixView& a, Range which, std::byte* to) const noexcept {
  constexpr int64_t kRowsAhead = 4;
  const int64_t bytes = row_bytes(kind_, a.cols);
  const int64_t step = row_step(a);
  for (int64_t m = which.begin; m < which.end; ++m) {
    const std::byte* from = static_cast<const std::byte*>(a.data) + m * step;
    std::byte* row = to + m * stride_;
    const int64_t ahead = std::min(kRowsAhead, which.end - 1 - m) * step;
    int64_t i = 0;
    for (; i + kLine <= bytes; i += kLine) {
      _mm_prefetch(reinterpret_cast<const char*>(from + ahead + i), _MM_HINT_T0);
      std::memcpy(row + i, from + i, kLine);
    }
    std::memcpy(row + i, from + i, static_cast<size_t>(bytes - i));
  }
}

}  // namespace quern::inline v0
