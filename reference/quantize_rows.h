#pragma once

#include <cstdint>
#include <vector>

#include "quern/quantize_rows.h"
#include "quern/status.h"

namespace quern::reference {

struct QuantizedRow {
  std::vector<int8_t> q;
  float scale = 0;
};

/// amax = max(max|x|, 1e-10f); scale = amax / 127; q = rne(x * (127 / amax)), every step one f32
/// operation. A row with a NaN or an infinity gets q = 0 and scale = NaN.
QuantizedRow quantize_row(const MatrixView& a, int64_t row);

/// The same arguments as the op: nothing here is packed.
Status quantize_rows(const QuantizeRowsDesc& desc, const QuantizeRowsArgs& args);

}  // namespace quern::reference
