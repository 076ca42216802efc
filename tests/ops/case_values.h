#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>

#include "quern/span.h"
#include "quern/status.h"
#include "reference/exact.h"
#include "tests/support/fills.h"
#include "tests/support/guard_buffer.h"
#include "tests/support/rng.h"
#include "tests/support/test_matrix.h"

/// What the test cases of every op share: the values of the operands, where these lie, and how a
/// run is wrapped. What is drawn here comes from the case's generator in the order of the calls.
namespace quern::test {

struct CaseValues {
  Fill fill = Fill::kRandom;
  Flush flush = Flush::kEnd;
  size_t offset = 0;  ///< base of the operands' distances from their guard pages
  uint64_t seed = 1;  ///< of the values
};

inline Fill draw_fill(Rng& rng) {
  return rng.pick(
      std::initializer_list<Fill>{Fill::kExact, Fill::kRandom, Fill::kRandom, Fill::kExtreme});
}

/// Type of the scales of int8 weights.
inline DType draw_scale_type(Rng& rng) {
  return rng.pick(std::initializer_list<DType>{DType::kF32, DType::kBF16, DType::kF16});
}

/// row_stride - cols.
inline int64_t draw_pad(Rng& rng) {
  return rng.one_in(3) ? 0 : rng.in(1, 40);
}

inline void draw_placement(CaseValues& c, Rng& rng) {
  c.flush = rng.one_in(2) ? Flush::kStart : Flush::kEnd;
  c.offset = static_cast<size_t>(rng.one_in(2) ? 0 : rng.in(0, 63));
}

/// How the description of a case ends.
inline std::string placement_and_seed(const CaseValues& c) {
  return std::string(c.flush == Flush::kEnd ? " flush:end" : " flush:start") +
         " offset:" + std::to_string(c.offset) + " seed:" + std::to_string(c.seed);
}

/// Where one operand after the other lies. Distances from the guard pages differ, so that operands
/// are not all aligned alike; a case with offset 0 has all of them at the page.
class Placements {
 public:
  explicit Placements(const CaseValues& c) : flush_(c.flush), offset_(c.offset) {}
  Placement next() {
    const Placement at{flush_, offset_};
    if (moves_) offset_ = (offset_ * 7 + 3) % 64;
    return at;
  }

 private:
  Flush flush_;
  size_t offset_;
  bool moves_ = offset_ != 0;
};

/// Largest |a| and |w| of an exact fill of a product of depth k: sums stay below 2^17 * 2^2 (scale)
/// with quanta of 2^-2, so that every f32 step of every epilogue is exact.
inline int64_t exact_limit(int64_t k) {
  const double limit = std::sqrt(0x1p17 / static_cast<double>(std::max<int64_t>(k, 1)));
  return std::clamp<int64_t>(static_cast<int64_t>(limit), 1, 8);
}

/// `limit` is that of Fill::kExact.
inline void fill_operand(TestMatrix& m, Rng& rng, Fill fill, int64_t limit) {
  switch (fill) {
    case Fill::kExact:
      return fill_integers(m, rng, limit);
    case Fill::kRandom:
      return fill_random(m, rng);
    case Fill::kExtreme:
      return fill_extreme(m, rng);
  }
}

/// Every element has to be equal bit for bit.
inline void drop_bounds(reference::Exact& exact) {
  for (reference::Bounded& x : exact.element) x.bound = 0;
}

/// Calls `run` with scratch of its own, filled with `poison`.
template <typename Run>
Status run_in_own_scratch(size_t bytes, unsigned char poison, const Run& run) {
  GuardBuffer scratch(bytes, Flush::kEnd);
  std::memset(scratch.data(), poison, scratch.size());
  const Status status =
      run(Span<std::byte>(reinterpret_cast<std::byte*>(scratch.data()), scratch.size()));
  EXPECT_TRUE(scratch.slack_intact()) << "wrote before the scratch memory";
  return status;
}

/// A step of a case that the op refused.
inline ::testing::AssertionResult refused(const char* step, const Status& status,
                                          const std::string& what) {
  return ::testing::AssertionFailure()
         << step << ": " << status.message() << "\n  case: " << what << "\n";
}

}  // namespace quern::test
