#pragma once

// Included before anything of Highway. The two SSE levels are left out: a CPU without AVX2 gets the
// portable code, and each file compiles three times instead of five.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
