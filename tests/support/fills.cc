#include "tests/support/fills.h"

#include <cmath>

namespace quern::test {

const char* to_string(Fill fill) {
  switch (fill) {
    case Fill::kExact:
      return "exact";
    case Fill::kRandom:
      return "random";
    case Fill::kExtreme:
      return "extreme";
  }
  return "?";
}

void fill_integers(TestMatrix& m, Rng& rng, int64_t limit) {
  for (int64_t i = 0; i < m.rows(); ++i) {
    for (int64_t j = 0; j < m.cols(); ++j) {
      m.set(i, j, static_cast<double>(rng.in(-limit, limit)));
    }
  }
}

void fill_random(TestMatrix& m, Rng& rng, int spread) {
  for (int64_t i = 0; i < m.rows(); ++i) {
    for (int64_t j = 0; j < m.cols(); ++j) {
      if (m.dtype() == DType::kS8) {
        m.set(i, j, static_cast<double>(rng.in(-128, 127)));
      } else {
        const int exponent = static_cast<int>(rng.in(-spread, spread));
        m.set(i, j, std::ldexp(rng.unit(), exponent));
      }
    }
  }
}

void fill_extreme(TestMatrix& m, Rng& rng) {
  fill_random(m, rng);
  for (int64_t i = 0; i < m.rows(); ++i) {
    for (int64_t j = 0; j < m.cols(); ++j) {
      if (rng.one_in(4)) continue;
      switch (m.dtype()) {
        case DType::kS8:
          m.set(i, j, rng.pick(kExtremeS8));
          break;
        case DType::kBF16:
          m.set_bits(i, j, rng.pick(kExtremeBF16));
          break;
        case DType::kF32:
          m.set_bits(i, j, rng.pick(kExtremeF32));
          break;
        default:
          break;
      }
    }
  }
}

void fill_scales(TestMatrix& m, Rng& rng, Fill fill) {
  for (int64_t i = 0; i < m.rows(); ++i) {
    for (int64_t j = 0; j < m.cols(); ++j) {
      switch (fill) {
        case Fill::kExact:
          m.set(i, j, std::ldexp(1.0, static_cast<int>(rng.in(-2, 2))));
          break;
        case Fill::kRandom:
          m.set(i, j, std::ldexp(1.5 + 0.5 * rng.unit(), -6));
          break;
        case Fill::kExtreme:
          m.set(i, j, rng.pick(kExtremeScale));
          break;
      }
    }
  }
}

}  // namespace quern::test
