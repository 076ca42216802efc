#include "reference/quantize_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/numeric.h"
#include "reference/shape_check.h"

namespace quern::reference {

QuantizedRow quantize_row(const MatrixView& a, int64_t row) {
  std::vector<float> x(static_cast<size_t>(a.cols));
  for (int64_t i = 0; i < a.cols; ++i) {
    x[static_cast<size_t>(i)] = static_cast<float>(load(a, row, i));
  }
  QuantizedRow out;
  out.q.assign(x.size(), 0);

  float amax = 1e-10f;
  for (const float v : x) {
    if (!std::isfinite(v)) {
      out.scale = std::numeric_limits<float>::quiet_NaN();
      return out;
    }
    amax = std::max(amax, std::fabs(v));
  }
  out.scale = amax / 127.0f;
  const float inverse = 127.0f / amax;
  for (size_t i = 0; i < x.size(); ++i) {
    out.q[i] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
  }
  return out;
}

Status quantize_rows(const QuantizeRowsDesc& desc, const QuantizeRowsArgs& args) {
  const int64_t groups =
      desc.group > 0 ? std::max<int64_t>(1, (desc.k + desc.group - 1) / desc.group) : 1;
  Status s =
      expect(args.a.cols == desc.k, "a.cols ({0}) must equal desc.k ({1})", args.a.cols, desc.k);
  if (s.ok()) {
    s = expect(args.q.rows == args.a.rows && args.q.cols == desc.k,
               "q must have the shape of a, it is {0} x {1}", args.q.rows, args.q.cols);
  }
  if (s.ok()) {
    s = expect(args.scale.size == args.a.rows, "scale.size ({0}) must equal a.rows ({1})",
               args.scale.size, args.a.rows);
  }
  if (s.ok() && args.sums.data) {
    s = expect(args.sums.rows == args.a.rows && args.sums.cols == groups,
               "sums must be [a.rows, groups], it is {0} x {1}", args.sums.rows, args.sums.cols);
  }
  if (!s.ok()) return s;

  for (int64_t i = 0; i < args.a.rows; ++i) {
    const QuantizedRow row = quantize_row(args.a, i);
    store(args.scale, i, row.scale);
    for (int64_t j = 0; j < desc.k; ++j) store(args.q, i, j, row.q[static_cast<size_t>(j)]);
    if (!args.sums.data) continue;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t begin = g * desc.group;
      const int64_t end = desc.group > 0 ? std::min(begin + desc.group, desc.k) : desc.k;
      int64_t sum = 0;
      for (int64_t j = begin; j < end; ++j) sum += row.q[static_cast<size_t>(j)];
      store(args.sums, i, g, static_cast<double>(sum));
    }
  }
  return s;
}

}  // namespace quern::reference
