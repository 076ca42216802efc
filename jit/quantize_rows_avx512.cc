#include "jit/quantize_rows_avx512.h"

#include <cstddef>

#include "jit/generator.h"

namespace quern::jit {
namespace {

constexpr uint32_t kInfinity = 0x7f800000;
constexpr uint32_t kSmallestAmax = 0x2edbe6ff;  // 1e-10f
constexpr uint32_t k127 = 0x42fe0000;           // 127.0f
constexpr uint32_t kNan = 0x7fc00000;
constexpr int kOrAnd = 0xF8;  // vpternlogd: dst | (src2 & src3)

/// for each row:
///   amax:   the largest |x| as an unsigned integer of its bits. Bits of magnitudes order as the
///           numbers do and NaN and infinity come last, so one compare finds a row that holds
///           either; a floating-point maximum would drop a NaN depending on the operand order.
///   scale:  amax / 127 and 127 / amax, two scalar divisions
///   groups: for each group, 16 columns at a time: convert, multiply, round, narrow, add up; of
///           bf16 64 at a time as long as there are as many
///   pad:    zeros up to the padded width
class QuantizeRowsAvx512 final : public Generator {
 public:
  explicit QuantizeRowsAvx512(const QuantizeRowsAvx512Config& config)
      : Generator(to_string(config), /*callee_saved=*/6, config.poison), config_(config) {}

 private:
  void emit() override;
  void emit_load_args();
  void emit_amax();
  void emit_amax_step(const Xbyak::Address& from, bool masked);
  void emit_reduce(const Xbyak::Zmm& z, bool maximum);
  void emit_scale();
  void emit_groups();
  void emit_column_loop();
  void emit_columns(bool masked);
  void emit_wide_columns();
  Xbyak::Zmm emit_pairs(int offset, const Xbyak::Zmm& even, const Xbyak::Zmm& odd);
  void emit_constants();
  void emit_pad();
  void emit_poisoned_row();
  void emit_next_row();

  /// columns = columns mod width, with that many low bits in tail_; jumps where there are none: a
  /// vector access with an empty mask is legal on an unmapped page, but slow there.
  void emit_tail_mask(const Xbyak::Reg64& columns, int width, Xbyak::Label& none);
  int a_size() const { return static_cast<int>(size_of(config_.a)); }
  bool bf16() const { return config_.a == DType::kBF16; }
  bool quantizes() const { return config_.a != DType::kS8; }
  /// Columns of one step of the quantizing loop: s8 is only copied and summed, so a whole vector.
  int width() const { return quantizes() ? 16 : 64; }
  Xbyak::Address arg(size_t offset) { return qword[args() + offset]; }
  static Xbyak::Reg32 low32(const Xbyak::Reg64& r) { return Xbyak::Reg32(r.getIdx()); }

  QuantizeRowsAvx512Config config_;
  Xbyak::Reg64 a_, q_, row_, from_, to_, left_, sums_, scale_, count_, tmp_;
  Xbyak::Zmm x_, sum_, inverse_, ones_, amax_;
  Xbyak::Zmm magnitude_, odd_elements_, low_byte_, low_word_, order_, quads_;
  Xbyak::Label constants_;
  Xbyak::Opmask tail_;
};

void QuantizeRowsAvx512::emit() {
  emit_prologue();
  emit_load_args();
  Xbyak::Label next_row, poisoned, row_done;
  L(next_row);
  if (quantizes()) {
    emit_amax();
    cmp(low32(tmp_), kInfinity);
    jae(poisoned, T_NEAR);
    emit_scale();
  }
  emit_groups();
  emit_pad();
  L(row_done);
  emit_next_row();
  dec(row_);
  jnz(next_row, T_NEAR);
  emit_return();
  if (!quantizes()) return;
  L(poisoned);
  emit_poisoned_row();
  jmp(row_done, T_NEAR);
  emit_constants();
}

void QuantizeRowsAvx512::emit_load_args() {
  section("load_args");
  const auto load = [this](const char* name, size_t offset) {
    const Xbyak::Reg64 reg = gp.take(name);
    mov(reg, arg(offset));
    return reg;
  };
  a_ = load("a", offsetof(QuantizeRowsArgs, a));
  q_ = load("q", offsetof(QuantizeRowsArgs, q));
  row_ = load("rows_left", offsetof(QuantizeRowsArgs, rows));
  sums_ = load("sums", offsetof(QuantizeRowsArgs, sums));
  if (quantizes()) scale_ = load("scale", offsetof(QuantizeRowsArgs, scale));
  from_ = gp.take("from");
  to_ = gp.take("to");
  left_ = gp.take("columns_left");
  count_ = gp.take("count");
  tmp_ = gp.take("tmp");
  x_ = vec.take("x");
  sum_ = vec.take("sum");
  inverse_ = vec.take("127/amax");
  amax_ = vec.take("amax");
  tail_ = mask.take("tail");
  const auto broadcast = [&](const char* name, uint32_t value) {
    const Xbyak::Zmm reg = vec.take(name);
    mov(low32(tmp_), value);
    vpbroadcastd(reg, low32(tmp_));
    return reg;
  };
  if (quantizes()) magnitude_ = broadcast("magnitude", bf16() ? 0x7fff7fff : 0x7fffffff);
  if (bf16() || !quantizes()) ones_ = broadcast("ones", 0x01010101);
  if (!bf16()) return;
  odd_elements_ = broadcast("odd_elements", 0xffff0000);
  low_byte_ = broadcast("low_byte", 0xff);
  low_word_ = broadcast("low_word", 0xffff);
  order_ = vec.take("order");
  vmovdqu16(order_, ptr[rip + constants_]);
  if (!config_.quads) return;
  quads_ = vec.take("quads");
  vbroadcasti32x4(quads_, ptr[rip + constants_ + 64]);
}

void QuantizeRowsAvx512::emit_tail_mask(const Xbyak::Reg64& columns, int width,
                                        Xbyak::Label& none) {
  and_(columns, width - 1);
  jz(none, T_NEAR);
  emit_low_bits(tmp_, columns);
  kmovq(tail_, tmp_);
}

// |x| of 32 bf16 or 16 f32 as integers.
void QuantizeRowsAvx512::emit_amax_step(const Xbyak::Address& from, bool masked) {
  if (!masked) {
    vpandd(x_, magnitude_, from);
  } else {
    if (bf16()) {
      vmovdqu16(x_ | tail_ | T_z, from);
    } else {
      vmovdqu32(x_ | tail_ | T_z, from);
    }
    vpandd(x_, x_, magnitude_);
  }
  if (bf16()) {
    vpmaxuw(amax_, amax_, x_);
  } else {
    vpmaxud(amax_, amax_, x_);
  }
}

// Leaves the bits of amax as f32 in tmp_.
void QuantizeRowsAvx512::emit_amax() {
  section("amax");
  const int per_step = 64 / a_size();
  const int log2 = bf16() ? 5 : 4;
  vpxord(amax_, amax_, amax_);
  mov(from_, a_);
  mov(count_, arg(offsetof(QuantizeRowsArgs, k)));
  shr(count_, log2);
  Xbyak::Label one, tail, reduce;
  const auto steps = [&](const Xbyak::Reg64& count, int unroll) {
    loop(count, [&] {
      for (int i = 0; i < unroll; ++i) emit_amax_step(ptr[from_ + i * 64], false);
      add(from_, 64 * unroll);
    });
  };
  mov(left_, count_);
  and_(left_, 3);
  shr(count_, 2);
  jz(one, T_NEAR);
  steps(count_, 4);
  L(one);
  test(left_, left_);
  jz(tail, T_NEAR);
  steps(left_, 1);
  L(tail);
  mov(count_, arg(offsetof(QuantizeRowsArgs, k)));
  emit_tail_mask(count_, per_step, reduce);
  emit_amax_step(ptr[from_], true);
  L(reduce);
  if (bf16()) {
    vpslld(x_, amax_, 16);
    vpsrld(amax_, amax_, 16);
    vpslld(amax_, amax_, 16);
    vpmaxud(amax_, amax_, x_);
  }
  emit_reduce(amax_, true);
  vmovd(low32(tmp_), Xbyak::Xmm(amax_.getIdx()));
}

// Lane 0 of z = maximum or sum of its 16 lanes.
void QuantizeRowsAvx512::emit_reduce(const Xbyak::Zmm& z, bool maximum) {
  TakenVec other_half(vec, "other_half");
  const Xbyak::Zmm o = *other_half;
  const auto join = [&] {
    if (maximum) {
      vpmaxud(z, z, o);
    } else {
      vpaddd(z, z, o);
    }
  };
  vextracti64x4(Xbyak::Ymm(o.getIdx()), z, 1);
  join();
  vextracti32x4(Xbyak::Xmm(o.getIdx()), z, 1);
  join();
  vpshufd(o, z, 0x4e);
  join();
  vpshufd(o, z, 0xb1);
  join();
}

void QuantizeRowsAvx512::emit_scale() {
  section("scale");
  TakenVec t(vec, "scale.tmp");
  const Xbyak::Xmm amax(amax_.getIdx()), inverse(inverse_.getIdx()), q_max((*t).getIdx());
  mov(low32(count_), kSmallestAmax);
  cmp(low32(tmp_), low32(count_));
  cmovb(low32(tmp_), low32(count_));
  vmovd(amax, low32(tmp_));
  mov(low32(tmp_), k127);
  vmovd(q_max, low32(tmp_));
  vdivss(inverse, q_max, amax);
  vdivss(amax, amax, q_max);
  vmovss(dword[scale_], amax);
  vbroadcastss(inverse_, inverse);
}

void QuantizeRowsAvx512::emit_groups() {
  section("groups");
  TakenGp row_left(gp, "row_left");
  TakenGp group_sum(gp, "group_sum");
  mov(from_, a_);
  mov(to_, q_);
  mov(*group_sum, sums_);
  mov(*row_left, arg(offsetof(QuantizeRowsArgs, k)));
  Xbyak::Label next_group, no_sums;
  L(next_group);
  mov(left_, arg(offsetof(QuantizeRowsArgs, group)));
  cmp(left_, *row_left);
  cmovg(left_, *row_left);
  sub(*row_left, left_);
  vpxord(sum_, sum_, sum_);
  emit_column_loop();
  test(sums_, sums_);
  jz(no_sums, T_NEAR);
  emit_reduce(sum_, false);
  vmovd(dword[*group_sum], Xbyak::Xmm(sum_.getIdx()));
  add(*group_sum, 4);
  L(no_sums);
  test(*row_left, *row_left);
  jnz(next_group, T_NEAR);
}

// left_ columns from from_ to to_, both of which end behind the last column.
void QuantizeRowsAvx512::emit_column_loop() {
  Xbyak::Label wide_done, tail, done;
  if (bf16()) {
    mov(count_, left_);
    and_(left_, 63);
    shr(count_, 6);
    jz(wide_done, T_NEAR);
    loop(count_, [&] {
      emit_wide_columns();
      add(from_, 128);
      add(to_, 64);
    });
    L(wide_done);
  }
  mov(count_, left_);
  shr(count_, width() == 16 ? 4 : 6);
  jz(tail, T_NEAR);
  loop(count_, [&] {
    emit_columns(false);
    add(from_, width() * a_size());
    add(to_, width());
  });
  L(tail);
  emit_tail_mask(left_, width(), done);
  emit_columns(true);
  add(to_, left_);
  if (a_size() > 1) shl(left_, a_size() == 2 ? 1 : 2);
  add(from_, left_);
  L(done);
}

// 32 bf16 at from_ + offset, quantized: byte 0 of lane i is element 2 i, byte 1 element 2 i + 1.
// The upper half of the lane is rubbish.
Xbyak::Zmm QuantizeRowsAvx512::emit_pairs(int offset, const Xbyak::Zmm& even,
                                          const Xbyak::Zmm& odd) {
  vpslld(even, ptr[from_ + offset], 16);
  vpandd(odd, odd_elements_, ptr[from_ + offset]);
  vmulps(even, even, inverse_);
  vmulps(odd, odd, inverse_);
  vcvtps2dq(even, even);
  vcvtps2dq(odd, odd);
  vpslld(odd, odd, 8);
  vpternlogd(odd, even, low_byte_, kOrAnd);
  return odd;
}

// Narrowing by masks and shifts and one permutation of words: a vpmovdb for every 16 columns takes
// the shuffle port twice each time.
void QuantizeRowsAvx512::emit_wide_columns() {
  TakenVec a(vec, "even.0"), b(vec, "odd.0"), c(vec, "even.1"), d(vec, "odd.1");
  const Xbyak::Zmm low = emit_pairs(0, *a, *b);
  const Xbyak::Zmm high = emit_pairs(64, *c, *d);
  vpslld(high, high, 16);
  vpternlogd(high, low, low_word_, kOrAnd);
  vpermw(high, order_, high);
  if (config_.quads) vpshufb(high, high, quads_);
  vpdpbusd(sum_, ones_, high);
  vmovdqu8(ptr[to_], high);
}

// Words of the lanes' low halves, then those of the high halves; bytes 0, 2, 1, 3 of each four.
void QuantizeRowsAvx512::emit_constants() {
  if (!bf16()) return;
  section("constants");
  align(64);
  L(constants_);
  for (int half = 0; half < 2; ++half) {
    for (int lane = 0; lane < 16; ++lane) dw(static_cast<uint16_t>(2 * lane + half));
  }
  if (!config_.quads) return;
  for (int quad = 0; quad < 16; quad += 4) {
    for (const int from : {0, 2, 1, 3}) db(static_cast<uint8_t>(quad + from));
  }
}

void QuantizeRowsAvx512::emit_columns(bool masked) {
  const auto operand = [&](const Xbyak::Zmm& z) {
    return masked ? z | tail_ | T_z : Xbyak::Zmm(z);
  };
  if (!quantizes()) {
    vmovdqu8(operand(x_), ptr[from_]);
    vpdpbusd(sum_, ones_, x_);
    if (masked) {
      vmovdqu8(ptr[to_] | tail_, x_);
    } else {
      vmovdqu8(ptr[to_], x_);
    }
    return;
  }
  if (bf16()) {
    vpmovzxwd(operand(x_), ptr[from_]);
    vpslld(x_, x_, 16);
  } else {
    vmovups(operand(x_), ptr[from_]);
  }
  vmulps(x_, x_, inverse_);
  vcvtps2dq(x_, x_);
  vpaddd(sum_, sum_, x_);
  constexpr uint8_t kQuads = 0xd8;  // lanes 0, 2, 1, 3
  if (config_.quads) vpshufd(x_, x_, kQuads);
  if (masked) {
    vpmovdb(ptr[to_] | tail_, x_);
  } else {
    vpmovdb(ptr[to_], x_);
  }
}

// to_ stands behind column k.
void QuantizeRowsAvx512::emit_pad() {
  if (config_.pad == 1) return;
  section("pad");
  Xbyak::Label done;
  mov(left_, arg(offsetof(QuantizeRowsArgs, k)));
  neg(left_);
  emit_tail_mask(left_, config_.pad, done);
  vpxord(x_, x_, x_);
  vmovdqu8(ptr[to_] | tail_, x_);
  L(done);
}

void QuantizeRowsAvx512::emit_poisoned_row() {
  section("poisoned_row");
  Xbyak::Label q_tail, q_done, no_sums, sum_loop;
  mov(dword[scale_], kNan);
  vpxord(x_, x_, x_);
  mov(to_, q_);
  mov(left_, arg(offsetof(QuantizeRowsArgs, k)));
  if (config_.pad > 1) {
    add(left_, config_.pad - 1);
    and_(left_, -config_.pad);
  }
  mov(count_, left_);
  shr(count_, 6);
  jz(q_tail, T_NEAR);
  loop(count_, [&] {
    vmovdqu8(ptr[to_], x_);
    add(to_, 64);
  });
  L(q_tail);
  emit_tail_mask(left_, 64, q_done);
  vmovdqu8(ptr[to_] | tail_, x_);
  L(q_done);

  test(sums_, sums_);
  jz(no_sums, T_NEAR);
  mov(from_, sums_);
  mov(left_, arg(offsetof(QuantizeRowsArgs, k)));
  L(sum_loop);
  mov(dword[from_], 0);
  add(from_, 4);
  sub(left_, arg(offsetof(QuantizeRowsArgs, group)));
  jg(sum_loop, T_NEAR);
  L(no_sums);
}

void QuantizeRowsAvx512::emit_next_row() {
  section("next_row");
  Xbyak::Label no_sums;
  add(a_, arg(offsetof(QuantizeRowsArgs, a_stride)));
  add(q_, arg(offsetof(QuantizeRowsArgs, q_stride)));
  if (quantizes()) add(scale_, 4);
  test(sums_, sums_);
  jz(no_sums, T_NEAR);
  add(sums_, arg(offsetof(QuantizeRowsArgs, sum_stride)));
  L(no_sums);
}

}  // namespace

Result<GeneratedCode> generate(const QuantizeRowsAvx512Config& config) {
  if (const char* rule = invalid(config)) return Status(StatusCode::kInvalidArgument, rule);
  return QuantizeRowsAvx512(config).generate();
}

}  // namespace quern::jit
