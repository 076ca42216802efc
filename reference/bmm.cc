#include "reference/bmm.h"

#include <cmath>
#include <vector>

#include "reference/dot_products.h"
#include "reference/numeric.h"
#include "reference/shape_check.h"

namespace quern::reference {
namespace {

MatrixView matrix_of(const BatchView& batch, int64_t matrix) {
  const char* first = static_cast<const char*>(batch.data);
  const int64_t skip = matrix * batch.batch_stride * static_cast<int64_t>(size_of(batch.dtype));
  return {batch.data == nullptr ? nullptr : first + skip, batch.dtype, batch.rows, batch.cols,
          batch.row_stride};
}

/// B as rows of depth, one for each column of C.
std::vector<std::vector<double>> columns_of(const MatrixView& b, BmmOrder order, int64_t n,
                                            int64_t k) {
  std::vector<std::vector<double>> columns;
  if (order == BmmOrder::kNK) {
    for (int64_t j = 0; j < n; ++j) columns.push_back(operand_row(b, j));
    return columns;
  }
  columns.resize(static_cast<size_t>(n));
  for (int64_t p = 0; p < k; ++p) {
    const std::vector<double> row = operand_row(b, p);
    for (int64_t j = 0; j < n; ++j) {
      columns[static_cast<size_t>(j)].push_back(row[static_cast<size_t>(j)]);
    }
  }
  return columns;
}

Status check_shapes(const BmmDesc& desc, const BmmArgs& args) {
  const BatchView& b = args.b.values;
  const bool nk = args.b.order == BmmOrder::kNK;
  Status s =
      expect(args.a.cols == desc.k, "a.cols ({0}) must equal desc.k ({1})", args.a.cols, desc.k);
  if (s.ok()) {
    s = expect(args.a.batch == args.c.batch && args.a.rows == args.c.rows,
               "a must have as many matrices ({0}) and rows ({1}) as c", args.c.batch, args.c.rows);
  }
  if (s.ok()) {
    s = expect(args.c.cols == desc.n, "c.cols ({0}) must equal desc.n ({1})", args.c.cols, desc.n);
  }
  if (s.ok()) {
    s = expect(b.batch == args.c.batch && (nk ? b.rows : b.cols) == desc.n &&
                   (nk ? b.cols : b.rows) == desc.k,
               "b must be c.batch matrices of desc.n ({0}) and desc.k ({1})", desc.n, desc.k);
  }
  if (s.ok() && b.dtype != DType::kBF16) {
    const MatrixView& scale = args.b.scale;
    s = expect(scale.rows == b.batch && (scale.cols == 1 || scale.cols == desc.n),
               "b.scale ({0} x {1}) must be one a column or one a matrix", scale.rows, scale.cols);
  }
  return s;
}

}  // namespace

Exact bmm_exact(const BmmDesc& desc, const BmmArgs& args, int64_t matrix) {
  const MatrixView a = matrix_of(args.a, matrix);
  const auto columns = columns_of(matrix_of(args.b.values, matrix), args.b.order, desc.n, desc.k);
  const bool scaled = args.b.values.dtype != DType::kBF16;
  Exact out{a.rows, desc.n, {}};
  for (int64_t i = 0; i < a.rows; ++i) {
    const std::vector<double> row = operand_row(a, i);
    for (int64_t j = 0; j < desc.n; ++j) {
      const std::vector<double>& column = columns[static_cast<size_t>(j)];
      double sum = 0, magnitude = 0;
      for (size_t p = 0; p < row.size(); ++p) {
        sum += row[p] * column[p];
        magnitude += std::fabs(row[p] * column[p]);
      }
      Bounded t = f32_chain(sum, magnitude, desc.k);
      if (scaled) t = times(t, load(args.b.scale, matrix, args.b.scale.cols == 1 ? 0 : j));
      out.element.push_back(t);
    }
  }
  return out;
}

Status bmm(const BmmDesc& desc, const BmmArgs& args) {
  if (const Status s = check_shapes(desc, args); !s.ok()) return s;
  for (int64_t matrix = 0; matrix < args.c.batch; ++matrix) {
    const MatrixView c = matrix_of(args.c, matrix);
    store_output({const_cast<void*>(c.data), c.dtype, c.rows, c.cols, c.row_stride},
                 bmm_exact(desc, args, matrix));
  }
  return {};
}

}  // namespace quern::reference
