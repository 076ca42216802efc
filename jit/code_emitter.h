#pragma once

#include <string>
#include <vector>

#include "jit/generator.h"
#include "quern/dtype.h"
#include "quern/int4_weights.h"

namespace quern::jit {

/// How weight codes become numbers that can be multiplied, for every generator that does it: one
/// piece of code for what the numeric contract calls exact.
class CodeEmitter : public Generator {
 protected:
  using Vectors = std::vector<Xbyak::Zmm>;

  using Generator::Generator;

  Xbyak::Zmm broadcast_word(const char* name, uint32_t value);

  // u8 codes (w + 128) as bf16:
  //     byte j of each lane -> 2^23 + u_j as f32 bits -> minus (2^23 + 128) = w_j, exact
  //     w_0 >> 16 | w_1  = the pair (w_0, w_1): integers up to 128 leave the low halves zero

  /// Constants that stay in three registers.
  void emit_decode_setup();
  /// to = the code in byte `slot` of each lane of `codes`, as f32. May be in place.
  void emit_decode(const Xbyak::Zmm& to, const Xbyak::Zmm& codes, int slot);
  /// `codes` holds four depths of 16 columns: low = pairs of the first two, codes = of the others.
  void emit_decode_pairs(const Xbyak::Zmm& low, const Xbyak::Zmm& codes);

  // 4-bit codes. Lane c of a line holds depths (0, 4, 2, 6, 1, 5, 3, 7) of column c in its nibbles
  // from the lowest, so that both of these need no shuffle of bytes:
  //     bytes: x & 0x0f0f0f0f is the quad of depths (0, 2, 1, 3), (x >> 4) & 0x0f0f0f0f (4, 6, 5,
  //     7) bf16:  vpermw looks the low five bits of each 16-bit half of a lane up in a table of 32.
  //            x >> 4 s has a code there and one bit that does not matter: the pairs of depths
  //            (0, 1), (4, 5), (2, 3), (6, 7) for s = 0..3

  /// The codes of four depths as bytes, from a line in memory: the first four or the others.
  void emit_nibble_setup();
  void emit_nibbles(const Xbyak::Zmm& to, const Xbyak::Address& line, bool second);

  /// to = z of each column in all four bytes of its lane, from 16 bytes in memory.
  void emit_load_byte_zeros(const Xbyak::Zmm& to, const Xbyak::Address& zeros);

  /// bf16(q - z). With integer zeros the index is q - z modulo 32, made for all four bytes of a
  /// lane at once, so that it takes a vector of z in bytes beside the table. Codes are kU4, or
  /// kE2M1 with zeros at their default: there are none.
  void emit_lookup_setup(Int4Zeros zeros, DType codes = DType::kU4);
  /// to = the pairs of depths 2 pair and 2 pair + 1 of a line. `half` (with integer zeros only)
  /// keeps what two pairs have in common: pairs are asked for in ascending order.
  void emit_lookup(const Xbyak::Zmm& to, const Xbyak::Address& line, int pair,
                   const Xbyak::Zmm* half, const Xbyak::Zmm* zeros);
  /// Data: behind the return.
  void emit_lookup_table();

  // NVFP4: e2m1 codes as 4-bit codes lie, and for each column and 16 depths a byte t: the block
  // scale s is the bf16 number whose bits are those of 512 less 16 t. A magnitude is 2^j or
  // 1.5 * 2^j, and bits(1.5 s) - bits(s) is a number d of seven bits that depends on s's mantissa
  // alone. So the bits of code * s follow from a table of 16 words in two operations:
  //     table: sign, exponent of 512 * 2^j, seven ones where the magnitude is 1.5 * 2^j; 0 for zero
  //     table & (0xff80 | d) - 16 t, saturated at 0: zeros stay zeros, -0 is one of them

  /// Constants that stay in three registers.
  void emit_nvfp4_setup();
  /// keep = 0xff80 | d and below = 16 t in both halves of each lane, from 16 bytes t in memory.
  void emit_block_scales(const Xbyak::Zmm& keep, const Xbyak::Zmm& below,
                         const Xbyak::Address& scales);
  /// to = the pairs of depths 2 pair and 2 pair + 1 of a line.
  void emit_nvfp4(const Xbyak::Zmm& to, const Xbyak::Address& line, int pair,
                  const Xbyak::Zmm& keep, const Xbyak::Zmm& below);
  /// Data: behind the return.
  void emit_nvfp4_tables();

  // 8-bit floating-point codes. Byte 16 L + 8 h + 2 c + j of a line is column 4 L + c, depth 2 h +
  // j, so that unpacking bytes within lanes makes pairs. All 128 magnitudes are in tables, with
  // subnormals, infinities and NaNs:
  //     VBMI: vpermi2b looks up the upper bytes of all 64 codes as bf16 and the lower ones; the
  //           upper ones get the signs; vpunpcklbw and vpunpckhbw make words of both
  //     else: unpacking the line with itself makes words; vpermi2w looks each up in both halves of
  //           the table, and bit 6 of the code says which it was; bit 15 is its sign

  /// Constants that stay in kFloat8Registers.
  void emit_float8_setup(DType codes, bool vbmi);
  /// low = pairs of the first two depths of a line in memory, high = of the others. Takes one
  /// vector register more while it lasts.
  void emit_float8(const Xbyak::Zmm& low, const Xbyak::Zmm& high, const Xbyak::Address& line);
  /// Data: behind the return.
  void emit_float8_tables();

 private:
  /// A line shifted so that the codes of a pair are the low bits of both halves of each lane.
  void emit_shifted(const Xbyak::Zmm& to, const Xbyak::Address& line, int pair);
  void emit_float8_words(const Xbyak::Zmm& words);

  Xbyak::Zmm byte_mask_, magic_, magic_zero_;
  Xbyak::Zmm nibble_mask_, table_;
  Int4Zeros zeros_ = Int4Zeros::kSymmetric;
  DType lookup_codes_ = DType::kU4;
  bool has_nibbles_ = false, has_table_ = false;
  Xbyak::Label table_data_;
  Xbyak::Zmm magnitudes_;
  Xbyak::Label nvfp4_data_;
  /// With VBMI upper bytes, then lower bytes; else words.
  Xbyak::Zmm float8_tables_[4];
  Xbyak::Zmm sign_;
  DType float8_codes_ = DType::kE4M3;
  bool has_float8_ = false, vbmi_ = false;
  Xbyak::Label float8_data_;
};

}  // namespace quern::jit
