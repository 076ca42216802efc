#include "tests/ops/int4_operands.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace quern::test {
namespace {

constexpr double kExtremeZeros[] = {0.0, -0.0, 8.0, 15.5, -1000.0, 1e-20, 7.0625};

TestMatrix placed(const Int4Words& words, int64_t pad, const Placement& place) {
  TestMatrix m(DType::kS32, words.rows, words.cols, pad, place);
  for (int64_t i = 0; i < words.rows; ++i) {
    for (int64_t j = 0; j < words.cols; ++j) {
      m.set_bits(i, j, static_cast<uint32_t>(words.word[static_cast<size_t>(i * words.cols + j)]));
    }
  }
  return m;
}

uint8_t nibble(Rng& rng) {
  return static_cast<uint8_t>(rng.in(0, 15));
}

}  // namespace

int64_t Int4Shape::groups() const {
  const int64_t columns = desc.group < 0 ? desc.k : std::min(desc.group, desc.k);
  return columns == 0 ? 0 : (desc.k + columns - 1) / columns;
}

int64_t draw_group(Rng& rng, int64_t k) {
  if (rng.one_in(4)) return rng.in(1, std::max<int64_t>(k, 1) + 3);
  return rng.pick(std::initializer_list<int64_t>{16, 24, 32, 48, 64, 100, 128, k, 0});
}

Int4Operand::Int4Operand(const Int4Shape& shape, Fill fill, int64_t limit, Rng& rng, int64_t pad,
                         Placements& places)
    : shape_(shape) {
  draw(fill, limit, rng);
  store(rng, pad, places);
  store_scales(fill, rng);
}

void Int4Operand::draw(Fill fill, int64_t limit, Rng& rng) {
  const Int4GemmDesc& d = shape_.desc;
  const int64_t groups = shape_.groups();
  for (int64_t i = 0; i < d.n * groups; ++i) {
    stored_zeros_.push_back(nibble(rng));
    double z = 8;
    if (d.zeros == Int4Zeros::kInteger) z = stored_zeros_.back() + shape_.zero_offset;
    if (d.zeros == Int4Zeros::kF32) {
      z = fill == Fill::kExact    ? nibble(rng)
          : fill == Fill::kRandom ? 8 + 8 * static_cast<double>(rng.unit())
                                  : rng.pick(kExtremeZeros);
    }
    zeros_.push_back(static_cast<float>(z));
  }
  for (int64_t n = 0; n < d.n; ++n) {
    for (int64_t k = 0; k < d.k; ++k) {
      // With g_idx codes are any: sums stay exact up to K = 2^15, with 16 in place of the limit.
      const int64_t group = d.act_order ? 0 : k / (d.group < 0 ? d.k : d.group);
      const double z = zeros_[static_cast<size_t>(n * groups + group)];
      if (fill == Fill::kExact && !d.act_order) {
        const auto middle = static_cast<int64_t>(z);
        codes_.push_back(static_cast<uint8_t>(
            std::clamp<int64_t>(rng.in(middle - limit, middle + limit), 0, 15)));
      } else if (fill == Fill::kExtreme && !rng.one_in(4)) {
        codes_.push_back(rng.pick(std::initializer_list<uint8_t>{0, 15, 7, 8}));
      } else {
        codes_.push_back(nibble(rng));
      }
    }
  }
}

void Int4Operand::store(Rng& rng, int64_t pad, Placements& places) {
  const Int4GemmDesc& d = shape_.desc;
  words =
      placed(int4_code_words(shape_.storage, codes_, d.n, d.k, nibble(rng)), pad, places.next());
  const Placement at = places.next();
  if (d.zeros == Int4Zeros::kInteger) {
    zero = placed(int4_zero_words(shape_.storage, stored_zeros_, d.n, shape_.groups(), nibble(rng)),
                  pad, at);
  } else if (d.zeros == Int4Zeros::kF32) {
    zero = TestMatrix(DType::kF32, shape_.scale_rows(), shape_.scale_cols(), pad, at);
    for (int64_t n = 0; n < d.n; ++n) {
      for (int64_t g = 0; g < shape_.groups(); ++g) {
        const double z = zeros_[static_cast<size_t>(n * shape_.groups() + g)];
        if (shape_.storage == Int4Storage::kRowMajor) {
          zero.set(n, g, z);
        } else {
          zero.set(g, n, z);
        }
      }
    }
  }
  scale = TestMatrix(d.scale, shape_.scale_rows(), shape_.scale_cols(), pad, places.next());
}

void Int4Operand::store_scales(Fill fill, Rng& rng) {
  if (fill != Fill::kExact) return fill_scales(scale, rng, fill);
  // Another power of two for every group and column, so that a misplaced one shows.
  for (int64_t i = 0; i < scale.rows(); ++i) {
    for (int64_t j = 0; j < scale.cols(); ++j) {
      scale.set(i, j, std::ldexp(1.0, static_cast<int>((i + j) % 5) - 2));
    }
  }
}

Int4Weights Int4Operand::weights(const TestMatrix& g_idx) const {
  Int4Weights w;
  w.storage = shape_.storage;
  w.codes = words.view();
  w.scale = scale.view();
  if (shape_.desc.zeros != Int4Zeros::kSymmetric) w.zero = zero.view();
  if (shape_.desc.zeros == Int4Zeros::kInteger) w.zero_offset = shape_.zero_offset;
  if (shape_.desc.act_order) w.g_idx = g_idx.vector();
  return w;
}

void Int4Operand::protect() {
  words.buffer().make_read_only();
  scale.buffer().make_read_only();
  if (shape_.desc.zeros != Int4Zeros::kSymmetric) zero.buffer().make_read_only();
}

TestMatrix make_g_idx(const Int4Shape& shape, GroupOrder order, Rng& rng, Placements& places) {
  const Int4GemmDesc& d = shape.desc;
  const int64_t groups = shape.groups();
  std::vector<int64_t> index;
  for (int64_t k = 0; k < d.k; ++k) {
    switch (order) {
      case GroupOrder::kSorted:
      case GroupOrder::kShuffled:
        index.push_back(k / (d.group < 0 ? d.k : d.group));
        break;
      case GroupOrder::kAlternating:
        index.push_back(k % groups);
        break;
      case GroupOrder::kAny:
        index.push_back(rng.in(0, groups - 1));
        break;
      case GroupOrder::kLast:
        index.push_back(groups - 1);
        break;
    }
  }
  if (order == GroupOrder::kShuffled) {
    for (int64_t i = d.k - 1; i > 0; --i) {
      std::swap(index[static_cast<size_t>(i)], index[static_cast<size_t>(rng.in(0, i))]);
    }
  }
  TestMatrix m(DType::kS32, 1, d.k, 0, places.next());
  for (int64_t k = 0; k < d.k; ++k) m.set(0, k, static_cast<double>(index[static_cast<size_t>(k)]));
  return m;
}

}  // namespace quern::test
