#include "reference/linear.h"

#include <vector>

#include "reference/numeric.h"
#include "reference/shape_check.h"

namespace quern::reference {
namespace {

constexpr int kLanes = 8;  // independent partial sums, so that plain C++ loops become vectors

double dot(const float* a, const float* w, int64_t k) {
  double sum[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      sum[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(w[i + lane]);
    }
  }
  for (; i < k; ++i) sum[0] += static_cast<double>(a[i]) * static_cast<double>(w[i]);
  double total = 0;
  for (const double s : sum) total += s;
  return total;
}

std::vector<float> row_as_f32(const MatrixView& m, int64_t row) {
  std::vector<float> out(static_cast<size_t>(m.cols));
  if (m.dtype == DType::kF32 && m.cols > 0) {
    std::memcpy(out.data(), static_cast<const char*>(m.data) + row * m.row_stride * 4,
                out.size() * 4);
    return out;
  }
  for (int64_t i = 0; i < m.cols; ++i) {
    out[static_cast<size_t>(i)] = static_cast<float>(load(m, row, i));
  }
  return out;
}

Status check(const LinearArgs& args) {
  const int64_t m = args.a.rows, n = args.weights.rows, k = args.weights.cols;
  Status s = expect(args.a.cols == k, "a.cols ({0}) must equal weights.cols ({1})", args.a.cols, k);
  if (s.ok()) {
    s = expect(args.weights.dtype == DType::kF32 && args.c.dtype == DType::kF32,
               "weights.dtype ({0:dtype}) and c.dtype ({1:dtype}) must be f32",
               static_cast<int64_t>(args.weights.dtype), static_cast<int64_t>(args.c.dtype));
  }
  if (s.ok()) {
    s = expect(args.a.dtype == DType::kF32 || args.a.dtype == DType::kBF16,
               "a.dtype ({0:dtype}) must be f32 or bf16", static_cast<int64_t>(args.a.dtype), 0);
  }
  if (s.ok()) {
    s = expect(args.c.rows == m && args.c.cols == n, "c must be [{0}, {1}]", m, n);
  }
  if (s.ok() && args.bias.data) {
    s = expect(args.bias.size == n && args.bias.dtype == DType::kF32,
               "bias.size ({0}) must equal weights.rows ({1})", args.bias.size, n);
  }
  return s;
}

}  // namespace

Status linear(const LinearArgs& args) {
  const Status s = check(args);
  if (!s.ok()) return s;
  const int64_t k = args.weights.cols;
  std::vector<std::vector<float>> a_rows;
  for (int64_t i = 0; i < args.a.rows; ++i) a_rows.push_back(row_as_f32(args.a, i));
  for (int64_t j = 0; j < args.weights.rows; ++j) {
    const std::vector<float> w = row_as_f32(args.weights, j);
    const double bias = args.bias.data ? load(args.bias, j) : 0.0;
    for (int64_t i = 0; i < args.a.rows; ++i) {
      store(args.c, i, j, dot(a_rows[static_cast<size_t>(i)].data(), w.data(), k) + bias);
    }
  }
  return s;
}

}  // namespace quern::reference
