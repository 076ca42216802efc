// The FMA family against vdpbf16ps itself, bit for bit, and the conversion of results without
// vcvtneps2bf16 against what that instruction is documented to do.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "jit/bf16_gemm_avx512.h"
#include "jit/bf16_gemm_fma_avx512.h"
#include "jit/gemm_args.h"
#include "tests/jit/kernel_fixture.h"

namespace quern::jit {
namespace {

uint32_t bits_of(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return u;
}

float from_bits(uint32_t u) {
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

/// bf16 of one kind: where exponents lie decides which of rounding, cancellation, underflow and
/// overflow a chain of products meets.
enum class Fill { kAnyBits, kNearOne, kUnderflowing, kOverflowing, kCancelling };
constexpr int kFills = 5;

uint16_t element(Fill fill, Numbers& numbers) {
  const auto bits = static_cast<uint16_t>(numbers.next());
  const auto exponent = [&](int from, int count) {
    return static_cast<uint16_t>(
        (bits & 0x807f) |
        static_cast<uint16_t>((from + static_cast<int>(numbers.next() % count)) << 7));
  };
  switch (fill) {
    case Fill::kAnyBits:
      return bits;
    case Fill::kNearOne:
      return exponent(120, 14);
    case Fill::kUnderflowing:  // products about 2^-126, and denormal elements among them
      return numbers.next() % 4 == 0 ? exponent(0, 2) : exponent(60, 8);
    case Fill::kOverflowing:
      return exponent(186, 8);
    case Fill::kCancelling:  // times codes: normal products, whose sums underflow
      return exponent(1, 2);
  }
  return 0;
}

class Bf16Fma : public KernelTest {};

TEST_F(Bf16Fma, HasTheBitsOfDotProducts) {
  if (!features_.bf16) GTEST_SKIP() << "not run: no AVX512-BF16 to compare with";
  constexpr int kMr = 3, kNr = 2, kColumns = 16 * kNr;
  Numbers numbers(11);
  int not_finite = 0, zeros = 0;
  for (const DType type : {DType::kBF16, DType::kU8, DType::kE4M3}) {
    if (type == DType::kE4M3 && !features_.vbmi) continue;
    const GemmConfig shape{kMr, kNr, 0, true, {DType::kF32}};
    const KernelHandle dots = make(Bf16GemmAvx512Config{shape, type});
    const KernelHandle fmas = make(Bf16GemmFmaAvx512Config{shape, type});
    for (int round = 0; round < 1000 * kFills; ++round) {
      const auto fill = static_cast<Fill>(round % kFills);
      const int k = 1 + static_cast<int>(numbers.next() % 24);
      const int padded = (k + 3) / 4 * 4;
      std::vector<uint16_t> a(static_cast<size_t>(kMr * k));
      std::vector<float> wide(static_cast<size_t>(kMr * padded), 0.0f);
      for (int m = 0; m < kMr; ++m) {
        for (int i = 0; i < k; ++i) {
          const uint16_t x = element(fill, numbers);
          a[static_cast<size_t>(m * k + i)] = x;
          wide[static_cast<size_t>(m * padded + i)] = from_bits(uint32_t{x} << 16);
        }
      }
      // Panels of any bits, but zeros (as codes: 128) where the packing pads.
      std::vector<uint16_t> b(static_cast<size_t>(kColumns * padded));
      std::vector<uint8_t> codes(static_cast<size_t>(kColumns * padded),
                                 type == DType::kU8 ? 128 : 0);
      for (int c = 0; c < kColumns; ++c) {
        for (int i = 0; i < k; ++i) {
          const int panel = c / 16 * 16 * padded, lane = c % 16;
          b[static_cast<size_t>(panel + i / 2 * 32 + lane * 2 + i % 2)] = element(fill, numbers);
          const int byte = type == DType::kU8
                               ? lane * 4 + i % 4
                               : lane / 4 * 16 + i % 4 / 2 * 8 + lane % 4 * 2 + i % 2;
          codes[static_cast<size_t>(panel + i / 4 * 64 + byte)] =
              static_cast<uint8_t>(numbers.next());
        }
      }
      std::vector<float> scale(kColumns, 0.125f), got(kMr * kColumns), want(kMr * kColumns);
      uint32_t control[2];
      GemmArgs args;
      args.control = control;
      args.k = k;
      args.n = kColumns;
      args.col_scale = scale.data();
      args.b = type != DType::kBF16 ? static_cast<const void*>(codes.data()) : b.data();
      args.panel_stride = 16 * padded * static_cast<int>(size_of(type));
      args.c_stride = kColumns * 4;
      args.a = a.data();
      args.a_stride = k * 2;
      args.c = want.data();
      dots->call(args);
      args.a = wide.data();
      args.a_stride = padded * 4;
      args.c = got.data();
      fmas->call(args);
      for (size_t i = 0; i < got.size(); ++i) {
        if (std::isnan(want[i])) {
          ASSERT_TRUE(std::isnan(got[i])) << round << ' ' << i;
        } else {
          ASSERT_EQ(bits_of(got[i]), bits_of(want[i])) << round << ' ' << i << " k " << k;
        }
        not_finite += std::isfinite(want[i]) ? 0 : 1;
        zeros += want[i] == 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(not_finite, 1000);
  EXPECT_GT(zeros, 1000);  // flushed sums
}

// A negative sum that underflows is -0, and so is the result: the pair that K lacks is not added.
// Where vdpbf16ps is at hand the test above meets such sums too.
TEST_F(Bf16Fma, APairThatIsMissingLeavesMinusZero) {
  const KernelHandle kernel =
      make(Bf16GemmFmaAvx512Config{{1, 1, 0, true, {DType::kF32}}, DType::kU8});
  const std::vector<uint8_t> codes(16 * 8, 129);  // every weight is 1
  const std::vector<float> scale(16, 1.0f);
  // Of a pair the odd element is added first.
  struct Sum {
    int k, first, last;
  };
  for (const auto& [k, first, last] : {Sum{2, 1, 0}, Sum{5, 3, 4}, Sum{6, 5, 4}}) {
    std::vector<float> a(8, 0.0f), c(16);
    a[static_cast<size_t>(first)] = 0x1p-126f;
    a[static_cast<size_t>(last)] = -0x1.02p-126f;
    uint32_t control[2];
    GemmArgs args;
    args.control = control;
    args.a = a.data();
    args.b = codes.data();
    args.k = k;
    args.n = 16;
    args.col_scale = scale.data();
    args.c = c.data();
    kernel->call(args);
    for (const float x : c) ASSERT_EQ(bits_of(x), 0x80000000) << k;
  }
}

// Nearest even, denormals to zeros of their sign, NaN quiet with its upper payload.
uint16_t to_bf16(uint32_t x) {
  const uint32_t magnitude = x & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(x >> 16 | 0x40);
  if (magnitude < 0x00800000) return static_cast<uint16_t>(x >> 31 << 15);
  return static_cast<uint16_t>((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

TEST_F(Bf16Fma, RoundsToBf16AsTheInstructionDoes) {
  Numbers numbers(12);
  GemmConfig shape{1, 4, 0, true, {DType::kBF16, /*bias=*/true}};
  shape.bf16 = false;
  const KernelHandle without = make(Bf16GemmFmaAvx512Config{shape, DType::kBF16});
  std::vector<uint32_t> cases = {0,          0x80000000, 1,          0x80000001, 0x007fffff,
                                 0x00800000, 0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001,
                                 0x7f7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0x7fc12345};
  while (cases.size() < 64 * 400) cases.push_back(static_cast<uint32_t>(numbers.next()));
  for (size_t first = 0; first + 64 <= cases.size(); first += 64) {
    std::vector<float> bias(64);
    std::memcpy(bias.data(), &cases[first], 64 * 4);
    std::vector<uint16_t> c(64);
    const float nothing = 0;
    uint32_t control[2];
    GemmArgs args;
    args.control = control;
    args.a = &nothing;
    args.b = &nothing;
    args.k = 0;  // t = +0 + bias: the bias itself, except that -0 becomes +0
    args.n = 64;
    args.bias = bias.data();
    args.c = c.data();
    without->call(args);
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t x = cases[first + i] == 0x80000000 ? 0 : cases[first + i];
      ASSERT_EQ(c[i], to_bf16(x)) << std::hex << x;
    }
    if (!features_.bf16) continue;
    GemmConfig with = shape;
    with.bf16 = true;
    std::vector<uint16_t> native(64);
    args.c = native.data();
    make(Bf16GemmFmaAvx512Config{with, DType::kBF16})->call(args);
    ASSERT_EQ(c, native);
  }
}

}  // namespace
}  // namespace quern::jit
