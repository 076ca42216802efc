#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model_smoke/safetensors.h"

namespace quern::smoke {

/// Index of the first element that is NaN or infinite, -1 when all are finite. Integers and the
/// 4- and 6-bit floats have no such values.
int64_t first_non_finite(const TensorView& tensor) noexcept;

/// More than one element, and all have the same bytes. Sub-byte types are never called constant.
bool is_constant(const TensorView& tensor) noexcept;

/// Rows that say nothing (bug log L03: the K rows of a published in_proj_qkv are zero).
struct BlankRows {
  int64_t count = 0;
  int64_t first = 0, last = 0;  ///< of those; there may be others in between

  void add(int64_t row) noexcept {
    if (count++ == 0) first = row;
    last = row;
  }
};
/// Elements of the first dimension; 1 of a scalar.
int64_t rows_of(const TensorView& tensor) noexcept;

/// Rows of zeros, of either sign, and rows of one other number, which in a row of fewer than 16 may
/// be chance; a row is all that shares the first index. `zeros_only`: scales, which are few to a
/// row and much alike, and one to a row in a tensor of one dimension, which otherwise has no rows.
/// U8 is taken for pairs of e2m1 codes.
BlankRows blank_rows(const TensorView& tensor, bool zeros_only) noexcept;
/// "16 of 48 rows hold one value each: rows 16 to 31".
std::string blank_rows_text(const BlankRows& blank, int64_t rows);

/// One element for a message: "NaN", "-3.5", "17"; the bytes in hexadecimal for exotic types.
std::string value_text(const TensorView& tensor, int64_t index);

/// F32, BF16 and F16 tensors as f32, in order. Any other dtype throws InputError.
std::vector<float> to_f32(const TensorView& tensor);

}  // namespace quern::smoke
