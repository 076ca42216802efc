#include "jit/code_emitter.h"

#include "jit/float_codes.h"

namespace quern::jit {

Xbyak::Zmm CodeEmitter::broadcast_word(const char* name, uint32_t value) {
  TakenGp bits(gp, "bits");
  const Xbyak::Zmm reg = vec.take(name);
  mov(Xbyak::Reg32((*bits).getIdx()), value);
  vpbroadcastd(reg, Xbyak::Reg32((*bits).getIdx()));
  return reg;
}

void CodeEmitter::emit_decode_setup() {
  byte_mask_ = broadcast_word("byte_mask", 0xff);
  magic_ = broadcast_word("2^23", 0x4b000000);
  magic_zero_ = broadcast_word("2^23+128", 0x4b000080);
}

void CodeEmitter::emit_decode(const Xbyak::Zmm& to, const Xbyak::Zmm& codes, int slot) {
  constexpr int kAndOr = 0xEA;  // (dst & src2) | src3, so that the code meets 2^23 at once
  if (slot > 0) {
    vpsrld(to, codes, static_cast<uint8_t>(8 * slot));
  } else if (to.getIdx() != codes.getIdx()) {
    vmovaps(to, codes);
  }
  if (slot == 3) {
    vpord(to, to, magic_);
  } else {
    vpternlogd(to, byte_mask_, magic_, kAndOr);
  }
  vsubps(to, to, magic_zero_);
}

void CodeEmitter::emit_decode_pairs(const Xbyak::Zmm& low, const Xbyak::Zmm& codes) {
  TakenVec odd(vec, "odd");
  emit_decode(low, codes, 0);
  emit_decode(*odd, codes, 1);
  vpsrld(low, low, 16);
  vpord(low, low, *odd);
  emit_decode(*odd, codes, 3);
  emit_decode(codes, codes, 2);
  vpsrld(codes, codes, 16);
  vpord(codes, codes, *odd);
}

void CodeEmitter::emit_nibble_setup() {
  if (!has_nibbles_) nibble_mask_ = broadcast_word("nibbles", 0x0f0f0f0f);
  has_nibbles_ = true;
}

void CodeEmitter::emit_nibbles(const Xbyak::Zmm& to, const Xbyak::Address& line, bool second) {
  if (!second) {
    vpandd(to, nibble_mask_, line);
    return;
  }
  vpsrld(to, line, 4);
  vpandd(to, to, nibble_mask_);
}

void CodeEmitter::emit_lookup_setup(Int4Zeros zeros, DType codes) {
  zeros_ = zeros;
  lookup_codes_ = codes;
  has_table_ = true;
  table_ = vec.take("table");
  vmovdqu16(table_, ptr[rip + table_data_]);
  if (zeros == Int4Zeros::kInteger) emit_nibble_setup();
}

void CodeEmitter::emit_load_byte_zeros(const Xbyak::Zmm& to, const Xbyak::Address& zeros) {
  TakenVec more(vec, "z");
  vpmovzxbd(to, zeros);
  vpslld(*more, to, 8);
  vpord(to, to, *more);
  vpslld(*more, to, 16);
  vpord(to, to, *more);
}

// Pairs in ascending order lie at 0, 8, 4 and 12 bits.
void CodeEmitter::emit_shifted(const Xbyak::Zmm& to, const Xbyak::Address& line, int pair) {
  const int shift = (pair >= 2 ? 4 : 0) + 8 * (pair % 2);
  if (shift == 0) {
    vmovdqu32(to, line);
  } else {
    vpsrld(to, line, static_cast<uint8_t>(shift));
  }
}

void CodeEmitter::emit_lookup(const Xbyak::Zmm& to, const Xbyak::Address& line, int pair,
                              const Xbyak::Zmm* half, const Xbyak::Zmm* zeros) {
  if (zeros_ != Int4Zeros::kInteger) {
    emit_shifted(to, line, pair);
    vpermw(to, to, table_);
    return;
  }
  if (pair % 2 == 0) {
    emit_nibbles(*half, line, pair >= 2);
    vpsubb(*half, *half, *zeros);
    vpermw(to, *half, table_);
  } else {
    vpsrld(to, *half, 8);
    vpermw(to, to, table_);
  }
}

void CodeEmitter::emit_lookup_table() {
  if (!has_table_) return;
  section("constants");
  align(64);
  L(table_data_);
  for (int i = 0; i < 32; ++i) {
    if (lookup_codes_ == DType::kE2M1) {
      dw(bf16_of_code(DType::kE2M1, i % 16));
      continue;
    }
    const int value = zeros_ == Int4Zeros::kInteger     ? (i < 16 ? i : i - 32)
                      : zeros_ == Int4Zeros::kSymmetric ? i % 16 - 8
                                                        : i % 16;
    dw(bfloat16::from_float(static_cast<float>(value)).bits);
  }
}

void CodeEmitter::emit_float8_setup(DType codes, bool vbmi) {
  float8_codes_ = codes;
  has_float8_ = true;
  vbmi_ = vbmi;
  for (int i = 0; i < 4; ++i) {
    float8_tables_[i] = vec.take("table." + std::to_string(i));
    vmovdqu16(float8_tables_[i], ptr[rip + float8_data_ + 64 * i]);
  }
  sign_ = broadcast_word("sign", vbmi ? 0x80808080 : 0x80008000);
}

void CodeEmitter::emit_float8(const Xbyak::Zmm& low, const Xbyak::Zmm& high,
                              const Xbyak::Address& line) {
  if (!vbmi_) {
    vmovdqu8(low, line);
    vpunpckhbw(high, low, low);
    vpunpcklbw(low, low, low);
    emit_float8_words(low);
    emit_float8_words(high);
    return;
  }
  constexpr int kOrAnd = 0xf8;  // dst | (src2 & src3)
  TakenVec bytes(vec, "bytes");
  vmovdqu8(high, line);
  vmovdqu8(*bytes, line);
  vpermi2b(high, float8_tables_[0], float8_tables_[1]);
  vpternlogd(high, sign_, line, kOrAnd);
  vpermi2b(*bytes, float8_tables_[2], float8_tables_[3]);
  vpunpcklbw(low, *bytes, high);
  vpunpckhbw(high, *bytes, high);
}

// In place: each word has its code in both bytes.
void CodeEmitter::emit_float8_words(const Xbyak::Zmm& words) {
  TakenVec below(vec, "below");
  TakenMask upper(mask, "upper"), negative(mask, "negative");
  vpmovw2m(*negative, words);
  vptestmw(*upper, words, ptr[rip + float8_data_ + 4 * 64]);
  vmovdqa64(*below, words);
  vpermi2w(*below, float8_tables_[0], float8_tables_[1]);
  vpermi2w(words, float8_tables_[2], float8_tables_[3]);
  vpblendmw(words | *upper, *below, words);
  vpaddw(words | *negative, words, sign_);
}

void CodeEmitter::emit_float8_tables() {
  if (!has_float8_) return;
  section("constants");
  align(64);
  L(float8_data_);
  if (vbmi_) {
    for (const int shift : {8, 0}) {
      for (int i = 0; i < 128; ++i) {
        db(static_cast<uint8_t>(bf16_of_code(float8_codes_, i) >> shift));
      }
    }
    return;
  }
  for (int i = 0; i < 128; ++i) dw(bf16_of_code(float8_codes_, i));
  for (int i = 0; i < 32; ++i) dw(0x40);  // which half of the table
}

}  // namespace quern::jit
