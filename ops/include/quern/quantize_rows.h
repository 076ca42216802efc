#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quern/context.h"
#include "quern/export.h"
#include "quern/status.h"
#include "quern/tensor_view.h"

namespace quern {
inline namespace v0 {

/// Dynamic symmetric quantization of each row to signed 8 bit (the numeric contract in
/// ops/README.md):
///   amax = max(max |x|, 1e-10f);  scale = amax / 127;  q = rne(x * (127 / amax)), in [-127, 127]
/// A row that holds a NaN or an infinity gets q = 0 and scale = NaN.
struct QuantizeRowsDesc {
  int64_t k = 0;           ///< columns, 0 <= k <= 2^24
  DType a = DType::kBF16;  ///< kBF16 or kF32
  int64_t group = 0;       ///< sums are per `group` columns (last group partial); 0: one sum a row
};

/// No operand may overlap another; q in place over `a` is not possible.
struct QuantizeRowsArgs {
  MatrixView a;             ///< [M, k]
  MutableMatrixView q;      ///< [M, k] kS8
  MutableVectorView scale;  ///< [M] kF32
  MutableMatrixView sums;   ///< [M, groups] kS32: sum of q over the group; may be null
};

/// Immutable; `run` may be called from any number of threads.
class QUERN_API QuantizeRows {
 public:
  static Result<QuantizeRows> create(const Context& ctx, const QuantizeRowsDesc& desc);

  const QuantizeRowsDesc& desc() const noexcept;
  /// The level of the kernel family that create() chose, which may be below the context's; kNone
  /// without a plan.
  IsaLevel isa() const noexcept;
  /// ceil(k / group), at least 1.
  int64_t groups() const noexcept;
  /// No allocation, no lock. kInvalidArgument names the first operand that breaks the contract.
  Status run(const QuantizeRowsArgs& args) const noexcept;
  std::string explain() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace v0
}  // namespace quern
