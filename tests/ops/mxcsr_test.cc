#include "ops/mxcsr.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>

#include "quern/thread_pool.h"

namespace quern {
namespace {

constexpr uint32_t kFtz = 0x8000;
constexpr uint32_t kDaz = 0x0040;
constexpr uint32_t kRoundUp = 0x4000;
constexpr uint32_t kInexactSeen = 0x0020;

// 2^-126 / 2 is subnormal. Volatile, so that the compiler neither folds the product nor moves it
// past a change of the control word.
uint32_t subnormal_bits() {
  volatile float x = std::bit_cast<float>(0x00800000u);
  volatile float half = 0.5f;
  volatile float product = x * half;
  return std::bit_cast<uint32_t>(static_cast<float>(product));
}

// Raises the sticky flag "inexact".
void divide_inexactly() {
  volatile float one = 1.0f;
  volatile float three = 3.0f;
  volatile float third = one / three;
  (void)third;
}

TEST(MxcsrScope, SetsTheDefaultAndRestoresEveryBit) {
  const uint32_t original = _mm_getcsr();
  for (const uint32_t extra : {0u, kFtz, kDaz, kFtz | kDaz, kRoundUp, kInexactSeen,
                               kFtz | kDaz | kRoundUp | kInexactSeen}) {
    const uint32_t host = kMxcsrDefault | extra;
    _mm_setcsr(host);
    {
      const MxcsrScope scope;
      EXPECT_EQ(_mm_getcsr(), kMxcsrDefault);
      // Sticky flags raised inside do not leak out.
      divide_inexactly();
      EXPECT_NE(_mm_getcsr() & kInexactSeen, 0u);
    }
    const uint32_t after = _mm_getcsr();
    _mm_setcsr(original);
    EXPECT_EQ(after, host);
  }
}

TEST(MxcsrScope, Nests) {
  const uint32_t original = _mm_getcsr();
  {
    const MxcsrScope outer;
    _mm_setcsr(kMxcsrDefault | kFtz);
    {
      const MxcsrScope inner;
      EXPECT_EQ(_mm_getcsr(), kMxcsrDefault);
    }
    EXPECT_EQ(_mm_getcsr(), kMxcsrDefault | kFtz);
  }
  EXPECT_EQ(_mm_getcsr(), original);
}

TEST(MxcsrScope, SubnormalsSurviveOnAHostThatFlushesThem) {
  const uint32_t original = _mm_getcsr();
  _mm_setcsr(kMxcsrDefault | kFtz | kDaz);
  const uint32_t flushed = subnormal_bits();
  uint32_t kept = 0;
  {
    const MxcsrScope scope;
    kept = subnormal_bits();
  }
  _mm_setcsr(original);
  EXPECT_EQ(flushed, 0u);
  EXPECT_EQ(kept, 0x00400000u);
}

TEST(MxcsrScope, WorkersOfAPoolMadeByAFlushingHostComputeTheSame) {
  const uint32_t original = _mm_getcsr();
  _mm_setcsr(kMxcsrDefault | kFtz | kDaz);
  auto pool = PersistentPool::create(3);  // workers inherit the control word
  ASSERT_TRUE(pool.ok());
  uint32_t bits[3] = {};
  pool.value()->run(
      1,
      [](void* ctx, int, int tid, int) {
        const MxcsrScope scope;
        static_cast<uint32_t*>(ctx)[tid] = subnormal_bits();
      },
      bits);
  const uint32_t after = _mm_getcsr();
  _mm_setcsr(original);
  EXPECT_EQ(after, kMxcsrDefault | kFtz | kDaz);
  for (const uint32_t b : bits) EXPECT_EQ(b, 0x00400000u);
}

}  // namespace
}  // namespace quern
