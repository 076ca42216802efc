#pragma once

#include <xmmintrin.h>

#include <cstdint>

namespace quern::inline v0 {

/// Round to nearest even, no FTZ, no DAZ, every exception masked: the only mode kernels run in.
constexpr uint32_t kMxcsrDefault = 0x1F80;

/// Puts the SSE control word of the calling thread into the state that the numeric contract assumes
/// and gives the caller's back, sticky flags included, on every way out. Each thread that computes
/// for a call holds one: hosts switch FTZ/DAZ on (a library built with fast-math is enough), and
/// workers inherit the word of whoever started them.
///
/// The compiler may move its own float arithmetic across the constructor. Kernels are calls through
/// a pointer and cannot be moved; scalar float code that must obey belongs into a function that is
/// not inlined into the scope.
class MxcsrScope {
 public:
  MxcsrScope() noexcept : saved_(_mm_getcsr()) { _mm_setcsr(kMxcsrDefault); }
  ~MxcsrScope() { _mm_setcsr(saved_); }
  MxcsrScope(const MxcsrScope&) = delete;
  MxcsrScope& operator=(const MxcsrScope&) = delete;

 private:
  const uint32_t saved_;
};

}  // namespace quern::inline v0
