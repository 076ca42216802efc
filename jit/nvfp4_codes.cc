#include "jit/code_emitter.h"

namespace quern::jit {
namespace {

constexpr int kExponentOf512 = 127 + 9;
constexpr int kMantissaBits = 7;

/// Sign, exponent and whether it is 1.5 times a power of two, for each code of e2m1.
constexpr uint16_t magnitude_word(int code) {
  const int exponent = code >> 1 & 3, half = code & 1;
  if ((code & 7) == 0) return 0;
  const int sign = code >> 3 << 15;
  // Exponent 0 is subnormal: 0.5.
  const int j = exponent == 0 ? -1 : exponent - 1;
  const int ones = exponent != 0 && half == 1 ? (1 << kMantissaBits) - 1 : 0;
  return static_cast<uint16_t>(sign | (kExponentOf512 + j) << kMantissaBits | ones);
}

/// What of a word of that table counts, for a block scale of 2^e * (1 + eighths / 8).
constexpr uint16_t kept_bits(int eighths) {
  const int mantissa = 16 * eighths;
  const int product = 3 * (128 + mantissa) / 2;  // 1.5 s, in units of the last place of s
  const int bits_of_product = product < 256 ? product - 128 : 128 + (product - 256) / 2;
  return static_cast<uint16_t>(0xff80 | (bits_of_product - mantissa));
}
// 1.5 * 1.25 stays below 2, 1.5 * 1.375 does not.
static_assert(kept_bits(0) == 0xffc0 && kept_bits(2) == 0xffd0 && kept_bits(3) == 0xffd4 &&
              kept_bits(7) == 0xffc4);

}  // namespace

void CodeEmitter::emit_nvfp4_setup() {
  magnitudes_ = vec.take("magnitudes");
  vmovdqu16(magnitudes_, ptr[rip + nvfp4_data_]);
}

void CodeEmitter::emit_block_scales(const Xbyak::Zmm& keep, const Xbyak::Zmm& below,
                                    const Xbyak::Address& scales) {
  vbroadcasti32x4(below, scales);
  vpshufb(below, below, ptr[rip + nvfp4_data_ + 128]);
  vpermw(keep, below, ptr[rip + nvfp4_data_ + 64]);
  vpsllw(below, below, 4);
}

void CodeEmitter::emit_nvfp4(const Xbyak::Zmm& to, const Xbyak::Address& line, int pair,
                             const Xbyak::Zmm& keep, const Xbyak::Zmm& below) {
  emit_shifted(to, line, pair);
  vpermw(to, to, magnitudes_);
  vpandd(to, to, keep);
  vpsubusw(to, to, below);
}

void CodeEmitter::emit_nvfp4_tables() {
  section("constants");
  align(64);
  L(nvfp4_data_);
  for (int i = 0; i < 32; ++i) dw(magnitude_word(i % 16));  // the bit above a code is another's
  for (int i = 0; i < 32; ++i) dw(kept_bits(-i & 7));       // t counts down
  for (int column = 0; column < 16; ++column) {
    for (int half = 0; half < 2; ++half) {
      db(static_cast<uint8_t>(column));
      db(0x80);
    }
  }
}

}  // namespace quern::jit
