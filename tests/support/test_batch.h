#pragma once

#include <cstdint>

#include "quern/tensor_view.h"
#include "tests/support/test_matrix.h"

namespace quern::test {

/// How the matrices of a batch lie in memory.
enum class BatchForm : uint8_t {
  kMatrices,  ///< one behind the other
  kHeads,     ///< a row of each, then the next row of each
  kShared,    ///< one for all
};

/// A batch of matrices between guard pages, with rows that belong to nobody between matrices (or
/// heads): NaN in every float type, and checked like the gaps of a TestMatrix.
class TestBatch {
 public:
  TestBatch() = default;
  TestBatch(DType dtype, int64_t batch, int64_t rows, int64_t cols, BatchForm form, int64_t pad = 0,
            int64_t gap = 0, Placement place = {})
      : batch_(batch), rows_(rows), form_(form), gap_(gap) {
    const int64_t matrices = form == BatchForm::kShared ? 1 : batch;
    int64_t all = matrices * rows;
    if (all > 0 && form == BatchForm::kMatrices) all += (matrices - 1) * gap;
    if (all > 0 && form == BatchForm::kHeads) all += (rows - 1) * gap;
    store_ = TestMatrix(dtype, all, cols, pad, place);
  }

  /// All rows there are, to be filled; then call finish().
  TestMatrix& store() { return store_; }
  void finish() {
    for (int64_t i = 0; i < store_.rows(); ++i) {
      if (in_gap(i)) set_gap(i);
    }
  }

  double get(int64_t matrix, int64_t row, int64_t col) const {
    return store_.get(at(matrix, row), col);
  }
  void set(int64_t matrix, int64_t row, int64_t col, double value) {
    store_.set(at(matrix, row), col, value);
  }
  void set_bits(int64_t matrix, int64_t row, int64_t col, uint32_t bits) {
    store_.set_bits(at(matrix, row), col, bits);
  }
  void set_row(int64_t matrix, int64_t row, double value) {
    store_.set_row(at(matrix, row), value);
  }
  void set_all(double value) {
    store_.set_all(value);
    finish();
  }

  BatchView view() const {
    const MatrixView m = store_.view();
    const int64_t stride = m.row_stride;
    switch (form_) {
      case BatchForm::kHeads:
        return {m.data, m.dtype, batch_, rows_, m.cols, stride, (batch_ + gap_) * stride};
      case BatchForm::kShared:
        return {m.data, m.dtype, batch_, rows_, m.cols, 0, stride};
      case BatchForm::kMatrices:
        break;
    }
    return {m.data, m.dtype, batch_, rows_, m.cols, (rows_ + gap_) * stride, stride};
  }
  MutableBatchView mutable_view() {
    const BatchView v = view();
    return {store_.buffer().data(), v.dtype, v.batch, v.rows, v.cols, v.batch_stride, v.row_stride};
  }
  /// One matrix of it.
  MatrixView matrix(int64_t matrix) const {
    const BatchView v = view();
    const auto skip = matrix * v.batch_stride * static_cast<int64_t>(size_of(v.dtype));
    return {static_cast<const char*>(v.data) + skip, v.dtype, v.rows, v.cols, v.row_stride};
  }

  bool surroundings_intact() const {
    if (!store_.surroundings_intact()) return false;
    for (int64_t i = 0; i < store_.rows(); ++i) {
      for (int64_t j = 0; in_gap(i) && j < store_.cols(); ++j) {
        if (store_.bits(i, j) != gap_bits()) return false;
      }
    }
    return true;
  }

 private:
  int64_t at(int64_t matrix, int64_t row) const {
    switch (form_) {
      case BatchForm::kHeads:
        return row * (batch_ + gap_) + matrix;
      case BatchForm::kShared:
        return row;
      case BatchForm::kMatrices:
        break;
    }
    return matrix * (rows_ + gap_) + row;
  }
  bool in_gap(int64_t i) const {
    if (form_ == BatchForm::kMatrices) return i % (rows_ + gap_) >= rows_;
    return form_ == BatchForm::kHeads && i % (batch_ + gap_) >= batch_;
  }
  uint32_t gap_bits() const {
    const auto bits = static_cast<int>(8 * size_of(store_.dtype()));
    return bits == 32 ? 0xffffffffu : (1u << bits) - 1;
  }
  void set_gap(int64_t i) {
    for (int64_t j = 0; j < store_.cols(); ++j) store_.set_bits(i, j, gap_bits());
  }

  int64_t batch_ = 0;
  int64_t rows_ = 0;
  BatchForm form_ = BatchForm::kMatrices;
  int64_t gap_ = 0;
  TestMatrix store_;
};

}  // namespace quern::test
