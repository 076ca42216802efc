#include "tests/support/compare.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <vector>

#include "reference/numeric.h"

namespace quern::test {
namespace {

uint32_t bits_of(DType t, const void* data, int64_t i) {
  uint32_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(data) + i * static_cast<int64_t>(size_of(t)),
              size_of(t));
  return bits;
}

bool is_float(DType t) {
  return t == DType::kF32 || t == DType::kBF16 || t == DType::kF16;
}

double value_of(DType t, uint32_t bits) {
  return reference::load(&bits, t, 0);
}

/// Position on the line of all numbers of the type: -0 sits one below +0.
int64_t position(DType t, uint32_t bits) {
  if (!is_float(t)) return static_cast<int64_t>(value_of(t, bits));
  const uint32_t sign = 1u << (8 * size_of(t) - 1);
  const int64_t magnitude = bits & (sign - 1);
  return bits & sign ? -magnitude - 1 : magnitude;
}

struct Difference {
  int64_t row;
  int64_t col;
  uint32_t actual;
  uint32_t expected;
  uint32_t ulp;
  double bound;
};

class Report {
 public:
  Report(const MatrixView& actual, const std::string& reproducer)
      : dtype_(actual.dtype), total_(actual.rows * actual.cols), reproducer_(reproducer) {}

  void add(const Difference& d) {
    if (count_ == 0 || d.ulp > worst_.ulp) worst_ = d;
    if (first_.size() < 5) first_.push_back(d);
    ++count_;
  }

  ::testing::AssertionResult result() const {
    if (count_ == 0) return ::testing::AssertionSuccess();
    std::ostringstream out;
    out << count_ << " of " << total_ << " elements differ, max ulp " << worst_.ulp << "\n  worst "
        << line(worst_);
    for (const Difference& d : first_) out << "\n  first " << line(d);
    out << "\n  case: " << reproducer_ << "\n";
    return ::testing::AssertionFailure() << out.str();
  }

 private:
  std::string line(const Difference& d) const {
    char text[200];
    std::snprintf(text, sizeof(text),
                  "[%lld, %lld] got %.9g (0x%x), expected %.9g (0x%x), %u ulp, allowed +-%.3g",
                  static_cast<long long>(d.row), static_cast<long long>(d.col),
                  value_of(dtype_, d.actual), d.actual, value_of(dtype_, d.expected), d.expected,
                  d.ulp, d.bound);
    return text;
  }

  DType dtype_;
  int64_t total_;
  std::string reproducer_;
  int64_t count_ = 0;
  Difference worst_{};
  std::vector<Difference> first_;
};

::testing::AssertionResult wrong_shape(const MatrixView& actual, int64_t rows, int64_t cols) {
  return ::testing::AssertionFailure() << "shapes differ: got " << actual.rows << " x "
                                       << actual.cols << ", expected " << rows << " x " << cols;
}

}  // namespace

uint32_t ulp_distance(DType t, uint32_t x, uint32_t y) {
  if (is_float(t)) {
    const bool x_nan = std::isnan(value_of(t, x));
    const bool y_nan = std::isnan(value_of(t, y));
    if (x_nan || y_nan) return x_nan && y_nan ? 0 : UINT32_MAX;
  }
  return static_cast<uint32_t>(std::llabs(position(t, x) - position(t, y)));
}

::testing::AssertionResult same_bits(const MatrixView& actual, const MatrixView& expected,
                                     const std::string& reproducer) {
  if (actual.rows != expected.rows || actual.cols != expected.cols ||
      actual.dtype != expected.dtype) {
    return wrong_shape(actual, expected.rows, expected.cols);
  }
  Report report(actual, reproducer);
  for (int64_t i = 0; i < actual.rows; ++i) {
    for (int64_t j = 0; j < actual.cols; ++j) {
      const uint32_t x = bits_of(actual.dtype, actual.data, i * actual.row_stride + j);
      const uint32_t y = bits_of(actual.dtype, expected.data, i * expected.row_stride + j);
      const uint32_t ulp = ulp_distance(actual.dtype, x, y);
      if (ulp != 0) report.add({i, j, x, y, ulp, 0});
    }
  }
  return report.result();
}

::testing::AssertionResult within(const MatrixView& actual, const reference::Exact& exact,
                                  const std::string& reproducer) {
  if (actual.rows != exact.rows || actual.cols != exact.cols) {
    return wrong_shape(actual, exact.rows, exact.cols);
  }
  Report report(actual, reproducer);
  for (int64_t i = 0; i < actual.rows; ++i) {
    for (int64_t j = 0; j < actual.cols; ++j) {
      const reference::Bounded& x = exact.at(i, j);
      const uint32_t got = bits_of(actual.dtype, actual.data, i * actual.row_stride + j);
      uint32_t expected = 0;
      reference::store(&expected, actual.dtype, 0, reference::round_output(actual.dtype, x.value));
      const uint32_t ulp = ulp_distance(actual.dtype, got, expected);
      const bool ok =
          x.bound == 0 ? ulp == 0 : accepts(x, actual.dtype, value_of(actual.dtype, got));
      if (!ok) report.add({i, j, got, expected, ulp, x.bound});
    }
  }
  return report.result();
}

}  // namespace quern::test
