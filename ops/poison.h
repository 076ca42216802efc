#pragma once

namespace quern::inline v0 {

/// Debug builds generate kernels that fill every vector register with NaN first, so that a read of
/// a register nobody wrote shows in every result.
#ifdef NDEBUG
constexpr bool kPoisonRegisters = false;
#else
constexpr bool kPoisonRegisters = true;
#endif

}  // namespace quern::inline v0
