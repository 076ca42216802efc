#pragma once

#include <cstdint>

#include "quern/bmm.h"
#include "reference/exact.h"

namespace quern::reference {

/// As quern::BmmArgs, with B as it is stored, whatever desc.b says about where it is packed: the
/// type of its values and its order say how to read it.
struct BmmArgs {
  BatchView a;
  BmmWeights b;
  MutableBatchView c;
};

/// Matrix `matrix` of the batch: C = A * B in double, times the scale of the column, and how far a
/// kernel with f32 accumulation may be from that.
Exact bmm_exact(const BmmDesc& desc, const BmmArgs& args, int64_t matrix);

/// C = the true value, rounded once.
Status bmm(const BmmDesc& desc, const BmmArgs& args);

}  // namespace quern::reference
