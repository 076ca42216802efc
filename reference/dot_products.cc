#include "reference/dot_products.h"

#include <cmath>

#include "reference/numeric.h"

namespace quern::reference {
namespace {

constexpr int kLanes = 8;  // independent partial sums, so that plain C++ loops become vectors

struct Sum {
  double value = 0;
  double magnitude = 0;
};

Sum dot(const double* a, const double* w, int64_t k) {
  double value[kLanes] = {};
  double magnitude[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double product = a[i + lane] * w[i + lane];
      value[lane] += product;
      magnitude[lane] += std::fabs(product);
    }
  }
  for (; i < k; ++i) {
    value[0] += a[i] * w[i];
    magnitude[0] += std::fabs(a[i] * w[i]);
  }
  Sum sum;
  for (int lane = 0; lane < kLanes; ++lane) {
    sum.value += value[lane];
    sum.magnitude += magnitude[lane];
  }
  return sum;
}

/// The formula decodes a code in tens of nanoseconds; a matrix has few distinct codes.
const std::vector<double>& bf16_operands() {
  static const std::vector<double> table = [] {
    std::vector<double> t(65536);
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      t[bits] = bf16_operand(static_cast<uint16_t>(bits));
    }
    return t;
  }();
  return table;
}

}  // namespace

std::vector<double> operand_row(const MatrixView& m, int64_t row) {
  std::vector<double> out(static_cast<size_t>(m.cols));
  if (m.dtype == DType::kBF16) {
    const std::vector<double>& table = bf16_operands();
    const char* p = static_cast<const char*>(m.data) + row * m.row_stride * 2;
    for (int64_t i = 0; i < m.cols; ++i) {
      uint16_t bits;
      std::memcpy(&bits, p + 2 * i, 2);
      out[static_cast<size_t>(i)] = table[bits];
    }
  } else {
    for (int64_t i = 0; i < m.cols; ++i) out[static_cast<size_t>(i)] = load(m, row, i);
  }
  return out;
}

DotProducts dot_products(const MatrixView& a, const MatrixView& w) {
  std::vector<std::vector<double>> a_rows;
  for (int64_t i = 0; i < a.rows; ++i) a_rows.push_back(operand_row(a, i));
  DotProducts out;
  out.value.resize(static_cast<size_t>(a.rows * w.rows));
  out.magnitude.resize(out.value.size());
  for (int64_t j = 0; j < w.rows; ++j) {
    const std::vector<double> w_row = operand_row(w, j);
    for (int64_t i = 0; i < a.rows; ++i) {
      const Sum sum = dot(a_rows[static_cast<size_t>(i)].data(), w_row.data(), a.cols);
      const size_t at = static_cast<size_t>(i * w.rows + j);
      out.value[at] = sum.value;
      out.magnitude[at] = sum.magnitude;
    }
  }
  return out;
}

}  // namespace quern::reference
