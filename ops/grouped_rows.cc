// Rows of A for weights whose columns share scales by groups of K: in the order of the weights'
// columns, padded as their groups are, with the sums that zero points are multiplied with.
#include <algorithm>
#include <cstring>

#include "jit/quantize_rows_avx512.h"
#include "ops/checked.h"
#include "ops/prepared_rows.h"
#include "ops/validate.h"

namespace quern::inline v0 {
namespace {

/// Where the byte of depth d stands in a row of quads: bytes 1 and 2 of each four are exchanged.
int64_t quad_place(int64_t depth) noexcept {
  const int64_t byte = depth & 3;
  return byte == 1 ? depth + 1 : byte == 2 ? depth - 1 : depth;
}

}  // namespace

// Consecutive columns, or those that `order` names up to its first -1.
template <typename Take>
int64_t PreparedRows::for_columns(int64_t group, const Take& take) const noexcept {
  const GroupLayout& l = groups_.layout;
  int64_t r = 0;
  if (groups_.order == nullptr) {
    const int64_t first = group * l.group;
    const int64_t count = std::min(l.group, l.k - first);
    for (; r < count; ++r) take(r, first + r);
  } else {
    const int32_t* order = groups_.order + group * l.padded;
    for (; r < l.padded && order[r] >= 0; ++r) take(r, order[r]);
  }
  return r;
}

std::byte* PreparedRows::raw(std::byte* copy) const noexcept {
  return copy + m_ * stride_ + scale_bytes() + sum_bytes();
}

// Sums of each group where the row itself is in place, else the quantized row.
int64_t PreparedRows::raw_row_bytes() const noexcept {
  if (kind_ != RowPreparation::kQuantize) return 0;
  return ceil_div(groups_.in_place() ? groups_.layout.groups * 4 : k_, 64) * 64;
}

int64_t PreparedRows::sum_bytes() const noexcept {
  return groups_.sums == RowGroups::Sums::kNone ? 0 : groups_.layout.groups * number_bytes();
}

void PreparedRows::store_sum(std::byte* to, int64_t group, int64_t row,
                             int64_t sum) const noexcept {
  std::byte* place = to + m_ * stride_ + scale_bytes() + group * number_bytes() + row * 4;
  if (groups_.sums == RowGroups::Sums::kF32) {
    const auto value = static_cast<float>(sum);
    std::memcpy(place, &value, sizeof value);
  } else {
    const auto value =
        static_cast<int32_t>(groups_.sums == RowGroups::Sums::kTimesMinus8 ? sum * -8 : sum);
    std::memcpy(place, &value, sizeof value);
  }
}

void PreparedRows::quantize_groups(const jit::Kernel& kernel, const MatrixView& a, Range which,
                                   std::byte* to) const noexcept {
  const bool in_place = groups_.in_place();
  std::byte* const rows = in_place ? to : raw(to);
  const int64_t stride = in_place ? stride_ : raw_row_bytes();
  jit::QuantizeRowsArgs args;
  args.a_stride = row_step(a);
  args.a = static_cast<const std::byte*>(a.data) + which.begin * args.a_stride;
  args.rows = which.size();
  args.k = a.cols;
  args.group = in_place ? groups_.layout.group : std::max<int64_t>(a.cols, 1);
  args.q = reinterpret_cast<int8_t*>(rows + which.begin * stride);
  args.q_stride = stride;
  args.scale = reinterpret_cast<float*>(to + m_ * stride_) + which.begin;
  if (in_place) {
    args.sums = reinterpret_cast<int32_t*>(raw(to) + which.begin * raw_row_bytes());
    args.sum_stride = raw_row_bytes();
  }
  kernel.call(args);
  for (int64_t row = which.begin; row < which.end; ++row) {
    if (!in_place) {
      gather_quantized(row, to);
      continue;
    }
    const auto* sums = reinterpret_cast<const int32_t*>(raw(to) + row * raw_row_bytes());
    for (int64_t g = 0; g < groups_.layout.groups; ++g) store_sum(to, g, row, sums[g]);
  }
}

void PreparedRows::gather_quantized(int64_t row, std::byte* to) const noexcept {
  const auto* from = reinterpret_cast<const int8_t*>(raw(to) + row * raw_row_bytes());
  auto* out = reinterpret_cast<int8_t*>(to + row * stride_);
  const GroupLayout& l = groups_.layout;
  for (int64_t g = 0; g < l.groups; ++g, out += l.padded) {
    int32_t sum = 0;
    int64_t r = for_columns(g, [&](int64_t place, int64_t column) {
      out[quad_place(place)] = from[column];
      sum += from[column];
    });
    for (; r < l.padded; ++r) out[quad_place(r)] = 0;
    store_sum(to, g, row, sum);
  }
}

void PreparedRows::gather(const MatrixView& a, Range which, std::byte* to) const noexcept {
  for (int64_t m = which.begin; m < which.end; ++m) {
    const std::byte* from = static_cast<const std::byte*>(a.data) + m * row_step(a);
    gather_row(from, to + m * stride_);
    if (groups_.sums != RowGroups::Sums::kNone) sum_groups(from, m, to);
  }
}

// Bits, not numbers: a signalling NaN must arrive as it is. Copied, because operands need no
// alignment.
void PreparedRows::gather_row(const std::byte* from, std::byte* to) const noexcept {
  const GroupLayout& l = groups_.layout;
  const auto bits_at = [from](int64_t column) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * column, sizeof bits);
    return bits;
  };
  const auto copy = [&](auto* out, auto value_of) {
    for (int64_t g = 0; g < l.groups; ++g, out += l.padded) {
      const int64_t count =
          for_columns(g, [&](int64_t r, int64_t column) { out[r] = value_of(bits_at(column)); });
      std::fill(out + count, out + l.padded, 0);
    }
  };
  if (kind_ == RowPreparation::kWiden) {
    copy(reinterpret_cast<uint32_t*>(to), [](uint16_t bits) { return uint32_t{bits} << 16; });
  } else {
    copy(reinterpret_cast<uint16_t*>(to), [](uint16_t bits) { return bits; });
  }
}

// In double, in eight sums that the columns of a group go to in turn, so that they can be added
// side by side; rounded once.
void PreparedRows::sum_groups(const std::byte* from, int64_t row, std::byte* to) const noexcept {
  for (int64_t g = 0; g < groups_.layout.groups; ++g) {
    double sums[8] = {};
    for_columns(g, [&](int64_t r, int64_t column) {
      bfloat16 x;
      std::memcpy(&x, from + 2 * column, sizeof x);
      sums[r % 8] += static_cast<double>(x.to_float());
    });
    for (int step = 4; step > 0; step /= 2) {
      for (int i = 0; i < step; ++i) sums[i] += sums[i + step];
    }
    const auto value = static_cast<float>(sums[0]);
    std::memcpy(to + m_ * stride_ + g * number_bytes() + row * 4, &value, sizeof value);
  }
}

}  // namespace quern::inline v0
