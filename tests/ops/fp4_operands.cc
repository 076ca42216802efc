#include "tests/ops/fp4_operands.h"

#include <cmath>
#include <initializer_list>

namespace quern::test {
namespace {

constexpr uint8_t kHalf = 0x30, kOne = 0x38, kTwo = 0x40, kMinusOne = 0xb8;  // as e4m3

uint8_t draw_scale(Fill fill, Rng& rng) {
  switch (fill) {
    case Fill::kExact:
      return rng.pick(std::initializer_list<uint8_t>{kHalf, kOne, kTwo, kMinusOne});
    case Fill::kRandom:
      return static_cast<uint8_t>(rng.in(0x20, 0x4f));  // 2^-3 to 7.5
    case Fill::kExtreme:
      break;
  }
  while (true) {
    const auto any = static_cast<uint8_t>(rng.in(0, 255));
    if ((any & 0x7f) != 0x7f) return any;
  }
}

uint8_t draw_power(Fill fill, Rng& rng) {
  switch (fill) {
    case Fill::kExact:
      return static_cast<uint8_t>(rng.in(126, 128));
    case Fill::kRandom:
      return static_cast<uint8_t>(rng.in(122, 129));
    case Fill::kExtreme:
      break;
  }
  return rng.pick(std::initializer_list<uint8_t>{0, 1, 40, 126, 127, 128, 140});
}

/// Any, but that of an exact fill is an integer of at most `limit` times the scale.
int draw_code(Fill fill, double scale, int64_t limit, Rng& rng) {
  while (true) {
    const auto code = static_cast<int>(rng.in(0, 15));
    const double value = kE2M1Values[code] * scale;
    if (fill != Fill::kExact) return code;
    if (std::fabs(value) <= static_cast<double>(limit) && value == std::trunc(value)) return code;
  }
}

}  // namespace

double e4m3_value(uint8_t byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return byte >= 0x80 ? -magnitude : magnitude;
}

double e8m0_value(uint8_t byte) {
  return std::ldexp(1.0, byte - 127);
}

Fp4Operand::Fp4Operand(const Fp4GemmDesc& d, Fp4Global global_is, Fill fill, int64_t limit,
                       Rng& rng, int64_t pad, Placements& places)
    : codes(DType::kU8, d.n, (d.k + 1) / 2, pad, places.next()),
      scale(d.format == Fp4Format::kNvfp4 ? DType::kE4M3 : DType::kE8M0, d.n,
            d.format == Fp4Format::kNvfp4 ? (d.k + 15) / 16 : (d.k + 31) / 32, pad, places.next()),
      global(DType::kF32, 1, d.format == Fp4Format::kNvfp4 ? 1 : 0, 0, places.next()),
      global_is_(global_is) {
  for (int64_t n = 0; n < d.n; ++n) {
    for (int64_t b = 0; b < scale.cols(); ++b) {
      scale.set_bits(n, b, block() == 16 ? draw_scale(fill, rng) : draw_power(fill, rng));
    }
    for (int64_t i = 0; i < codes.cols(); ++i) codes.set_bits(n, i, 0);
    for (int64_t k = 0; k < d.k; ++k) {
      set_code(n, k, draw_code(fill, scale_at(n, k), limit, rng));
    }
    // Behind an odd k stands something that is no weight.
    if (d.k % 2 != 0) set_code(n, d.k, 7);
  }
  if (d.format == Fp4Format::kMxfp4) return;
  // Finite and positive.
  if (fill == Fill::kExtreme) {
    global.set(0, 0, rng.pick(std::initializer_list<float>{1.0f, 0.5f, 1.0f / 3, 0x1p-126f, 3e4f}));
  } else {
    fill_scales(global, rng, fill);
  }
  if (global_is == Fp4Global::kDivisor) global.set(0, 0, 1 / global.get(0, 0));
}

Fp4Weights Fp4Operand::weights() const {
  const VectorView none;
  return {codes.view(), scale.view(), block() == 16 ? global.vector() : none, global_is_};
}

void Fp4Operand::protect() {
  for (TestMatrix* m : {&codes, &scale, &global}) {
    if (m->view().data) m->buffer().make_read_only();
  }
}

int Fp4Operand::code(int64_t n, int64_t k) const {
  return static_cast<int>(codes.bits(n, k / 2) >> (k % 2 != 0 ? 4 : 0) & 15);
}

double Fp4Operand::scale_at(int64_t n, int64_t k) const {
  const auto byte = static_cast<uint8_t>(scale.bits(n, k / block()));
  return block() == 16 ? e4m3_value(byte) : e8m0_value(byte);
}

double Fp4Operand::value(int64_t n, int64_t k) const {
  return kE2M1Values[code(n, k)] * scale_at(n, k);
}

void Fp4Operand::set_code(int64_t n, int64_t k, int code) {
  const int shift = k % 2 != 0 ? 4 : 0;
  const uint32_t other = codes.bits(n, k / 2) & (0xf0u >> shift);
  codes.set_bits(n, k / 2, other | static_cast<uint32_t>(code) << shift);
}

}  // namespace quern::test
