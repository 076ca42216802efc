#include "jit/gemm_microkernel.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <utility>

namespace quern::jit {
namespace {

// exp(r) on |r| <= ln2 / 2 as 1 + r + r^2 p(r), Cephes' single-precision coefficients: below 1 ulp
// before the final scaling, and the scaling by 2^n is exact except into subnormals.
constexpr float kConstants[] = {
    1.44269504088896341f,  // 0  log2(e)
    0.693359375f,          // 1  ln2, high part: n * this is exact for |n| < 2^15
    -2.12194440e-4f,       // 2  ln2, low part
    1.9875691500e-4f,      // 3  p5
    1.3981999507e-3f,      // 4  p4
    8.3334519073e-3f,      // 5  p3
    4.1665795894e-2f,      // 6  p2
    1.6666665459e-1f,      // 7  p1
    5.0000001201e-1f,      // 8  p0
    1.0f,                  // 9
    -104.0f,               // 10 exp of anything below rounds to 0
    -0.0f,                 // 11 the sign bit
};
// For rounding to bf16, after those.
constexpr int kFirstWord = 12;
constexpr uint32_t kWords[] = {
    1,       // 12 the bit that decides a tie
    0x7fff,  // 13 just below half of bf16's last place
    0x40,    // 14 makes a NaN quiet
};

}  // namespace

GemmMicrokernel::GemmMicrokernel(std::string name, const GemmConfig& shape, const Step& step)
    : Generator(std::move(name), /*callee_saved=*/6, shape.poison), shape_(shape), step_(step) {}

void GemmMicrokernel::emit() {
  emit_prologue();
  for (int m = 0; m < shape_.mr; ++m) {
    for (int v = 0; v < shape_.nr; ++v) {
      acc_.push_back(vec.take("acc." + std::to_string(m) + '.' + std::to_string(v)));
    }
  }
  emit_load_args();
  emit_setup();
  emit_load_partial();
  Xbyak::Label not_yet, not_last, done;
  section("fetch_rows");
  cmp(arg(offsetof(GemmArgs, last)), 0);
  je(not_yet, T_NEAR);
  emit_fetch_rows(offsetof(GemmArgs, c), offsetof(GemmArgs, c_stride), true);
  if (shape_.epilogue.residual) {
    emit_fetch_rows(offsetof(GemmArgs, residual), offsetof(GemmArgs, residual_stride), false);
  }
  L(not_yet);
  emit_k_loop();
  emit_teardown();

  cmp(arg(offsetof(GemmArgs, last)), 0);
  je(not_last, T_NEAR);
  emit_to_f32();
  emit_epilogue();
  jmp(done, T_NEAR);
  L(not_last);
  emit_store_partial();
  L(done);
  emit_return();
  emit_constants();
}

void GemmMicrokernel::emit_load_args() {
  section("load_args");
  const auto load = [this](const char* name, size_t offset) {
    const Xbyak::Reg64 reg = gp.take(name);
    mov(reg, arg(offset));
    return reg;
  };
  a_ = load("a", offsetof(GemmArgs, a));
  b_ = load("b", offsetof(GemmArgs, b));
  k_ = load("k", offsetof(GemmArgs, k));
  if (shape_.mr > 1) s_ = load("a_stride", offsetof(GemmArgs, a_stride));
  if (shape_.mr > 3) {
    s3_ = gp.take("a_stride*3");
    lea(s3_, ptr[s_ + s_ * 2]);
  }
  if (shape_.mr > 5) {
    s5_ = gp.take("a_stride*5");
    lea(s5_, ptr[s_ + s_ * 4]);
  }
  if (shape_.mr > 7) {
    s7_ = gp.take("a_stride*7");
    lea(s7_, ptr[s3_ + s_ * 4]);
  }
  if (shape_.mr > 8) {
    a_high_ = gp.take("a.row8");
    lea(a_high_, ptr[a_ + s_ * 8]);
  }
  if (shape_.nr > 1) p_ = load("panel_stride", offsetof(GemmArgs, panel_stride));
  if (shape_.nr > 3) {
    p3_ = gp.take("panel_stride*3");
    lea(p3_, ptr[p_ + p_ * 2]);
  }
  if (shape_.prefetch != 0) ahead_ = gp.take("prefetch");
}

Xbyak::RegExp GemmMicrokernel::row(int m) const {
  const Xbyak::Reg64& base = m < 8 ? a_ : a_high_;
  switch (m % 8) {
    case 0:
      return Xbyak::RegExp(base);
    case 1:
      return base + s_;
    case 2:
      return base + s_ * 2;
    case 3:
      return base + s3_;
    case 4:
      return base + s_ * 4;
    case 5:
      return base + s5_;
    case 6:
      return base + s3_ * 2;
    default:
      return base + s7_;
  }
}

Xbyak::RegExp GemmMicrokernel::panel_of(const Xbyak::Reg64& base, int v) const {
  switch (v) {
    case 0:
      return Xbyak::RegExp(base);
    case 1:
      return base + p_;
    case 2:
      return base + p_ * 2;
    default:
      return base + p3_;
  }
}

std::vector<Xbyak::Zmm> GemmMicrokernel::take_broadcasts() {
  std::vector<Xbyak::Zmm> vectors = {vec.take("a.0")};
  if (vec.free() > 0) vectors.push_back(vec.take("a.1"));
  return vectors;
}

void GemmMicrokernel::give_back(const std::vector<Xbyak::Zmm>& vectors) {
  for (const Xbyak::Zmm& z : vectors) vec.give_back(z);
}

// What this call reads itself goes to L1. What another call will read goes to L2: it must not push
// this one's rows and panels out of L1. Spread over the turn, because a burst of misses fills the
// line fill buffers that the turn's own loads need.
void GemmMicrokernel::emit_prefetch(int step) {
  if (streams()) {
    for (int v = 0; v < shape_.nr; ++v) prefetcht0(ptr[panel_of(ahead_, v) + step * 64]);
    return;
  }
  for (int i = 0; i < shape_.prefetch; ++i) {
    if (i * kUnroll / shape_.prefetch == step) prefetcht1(ptr[ahead_ + i * 64]);
  }
}

// The epilogue's lines of C and of the residual, a K loop ahead of their use: rows lie far apart,
// so that no hardware prefetcher sees them coming. Without this a 64-row block of C that is not in
// L2 cost 15 % of a 64 x 4096 x 4096 int8 product (bench/NOTES.md).
void GemmMicrokernel::emit_fetch_rows(size_t base, size_t stride, bool for_write) {
  const int bytes = outputs() * 16 * static_cast<int>(size_of(shape_.epilogue.c));
  TakenGp row(gp, "row");
  mov(*row, arg(base));
  for (int m = 0; m < shape_.mr; ++m) {
    for (int offset = 0; offset < bytes + 64; offset += 64) {
      const Xbyak::Address line = ptr[*row + std::min(offset, bytes - 1)];
      if (for_write) {
        prefetchw(line);
      } else {
        prefetcht0(line);
      }
    }
    if (m + 1 < shape_.mr) add(*row, arg(stride));
  }
}

void GemmMicrokernel::emit_load_partial() {
  section("load_partial");
  Xbyak::Label zero, done;
  cmp(arg(offsetof(GemmArgs, first)), 0);
  jne(zero, T_NEAR);
  {
    TakenGp partial(gp, "partial");
    mov(*partial, arg(offsetof(GemmArgs, acc)));
    for (int m = 0; m < shape_.mr; ++m) {
      for (int v = 0; v < shape_.nr; ++v) vmovups(acc(m, v), ptr[*partial + partial_offset(m, v)]);
    }
  }
  jmp(done, T_NEAR);
  L(zero);
  for (const Xbyak::Zmm& z : acc_) vpxord(z, z, z);
  L(done);
}

void GemmMicrokernel::emit_store_partial() {
  section("store_partial");
  TakenGp partial(gp, "partial");
  mov(*partial, arg(offsetof(GemmArgs, acc)));
  for (int m = 0; m < shape_.mr; ++m) {
    for (int v = 0; v < shape_.nr; ++v) vmovups(ptr[*partial + partial_offset(m, v)], acc(m, v));
  }
}

// `count` times kUnroll steps.
void GemmMicrokernel::emit_unrolled(const Xbyak::Reg64& count) {
  loop(count, [&] {
    for (int u = 0; u < kUnroll; ++u) {
      emit_prefetch(u);
      emit_step(u * step_.a_bytes, u * 64);
    }
    emit_advance(kUnroll);
    if (shape_.prefetch != 0) add(ahead_, 64 * (streams() ? kUnroll : shape_.prefetch));
  });
}

void GemmMicrokernel::emit_advance(int steps) {
  add(a_, step_.a_bytes * steps);
  if (shape_.mr > 8) add(a_high_, step_.a_bytes * steps);
  add(b_, 64 * steps);
}

// steps = what is to be done after the part that is under way, whose unrolled turns `count` holds:
// first the part that fetches ahead at args.prefetch, then the rest at args.prefetch_next.
void GemmMicrokernel::emit_k_loop() {
  section("k_loop");
  TakenGp steps(gp, "steps");
  TakenGp count(gp, "count");
  mov(*steps, k_);
  if (step_.round_up) add(*steps, (1 << step_.k_step_log2) - 1);
  shr(*steps, step_.k_step_log2);

  static_assert(kUnroll == 4, "the shifts below divide by the unroll");
  Xbyak::Label part, part_done, rest, tail;
  if (shape_.prefetch != 0) {
    if (streams()) {
      mov(ahead_, arg(offsetof(GemmArgs, prefetch)));
      mov(*count, arg(offsetof(GemmArgs, prefetch_steps)));
      sub(*steps, *count);
      shr(*count, 2);
      jz(part_done, T_NEAR);
    } else {
      jmp(part_done, T_NEAR);
    }
    L(part);
    emit_unrolled(*count);
    L(part_done);
    mov(ahead_, arg(offsetof(GemmArgs, prefetch_next)));
    mov(*count, *steps);
    and_(*steps, kUnroll - 1);
    shr(*count, 2);
    jnz(part, T_NEAR);
  } else {
    mov(*count, *steps);
    and_(*steps, kUnroll - 1);
    shr(*count, 2);
    jz(rest, T_NEAR);
    emit_unrolled(*count);
    L(rest);
  }
  section("k_rest");
  test(*steps, *steps);
  jz(tail, T_NEAR);
  loop(*steps, [&] {
    emit_step(0, 0);
    emit_advance(1);
  });
  L(tail);
  if (!step_.round_up) {
    section("k_tail");
    emit_k_tail();
  }
  if (shape_.prefetch != 0) gp.give_back(ahead_);
}

void GemmMicrokernel::emit_scale_columns() {
  section("scale_columns");
  TakenGp col_scale(gp, "col_scale");
  mov(*col_scale, arg(offsetof(GemmArgs, col_scale)));
  for (int m = 0; m < shape_.mr; ++m) {
    for (int v = 0; v < shape_.nr; ++v) vmulps(acc(m, v), acc(m, v), ptr[*col_scale + v * 64]);
  }
}

void GemmMicrokernel::emit_column_masks(const Xbyak::Reg64& n) {
  TakenGp bits(gp, "column_bits");
  emit_low_bits(*bits, n);
  for (int j = 0; j < outputs(); ++j) {
    columns_.push_back(mask.take("columns." + std::to_string(j)));
    kmovw(columns_.back(), Xbyak::Reg32((*bits).getIdx()));
    if (j + 1 < outputs()) shr(*bits, 16);
  }
}

void GemmMicrokernel::emit_epilogue() {
  section("epilogue");
  {
    TakenGp n(gp, "n");
    mov(*n, arg(offsetof(GemmArgs, n)));
    emit_column_masks(*n);
  }
  c_ = gp.take("c");
  mov(c_, arg(offsetof(GemmArgs, c)));
  if (shape_.epilogue.residual) {
    residual_ = gp.take("residual");
    mov(residual_, arg(offsetof(GemmArgs, residual)));
  }
  for (int m = 0; m < shape_.mr; ++m) {
    emit_row(m);
    if (m + 1 == shape_.mr) break;
    add(c_, arg(offsetof(GemmArgs, c_stride)));
    if (shape_.epilogue.residual) add(residual_, arg(offsetof(GemmArgs, residual_stride)));
  }
}

void GemmMicrokernel::emit_row(int m) {
  if (shape_.epilogue.bias) {
    for (int v = 0; v < shape_.nr; ++v) emit_bias(m, v);
  }
  if (gate_up()) emit_silu_mul(m);
  for (int j = 0; j < outputs(); ++j) {
    const Xbyak::Zmm t = acc(m, gate_up() ? 2 * j : j);
    if (shape_.epilogue.residual) emit_residual(t, j);
    emit_store(t, j);
  }
}

// Masked: the bias ends with its last element, and the byte after it may not be mapped.
void GemmMicrokernel::emit_bias(int m, int v) {
  const int j = gate_up() ? v / 2 : v;
  const bool up = gate_up() && v % 2 == 1;
  TakenGp base(gp, "bias");
  TakenVec tmp(vec, "bias");
  mov(*base, arg(up ? offsetof(GemmArgs, bias_up) : offsetof(GemmArgs, bias)));
  vmovups(*tmp | columns(j) | T_z, ptr[*base + j * 64]);
  vaddps(acc(m, v), acc(m, v), *tmp);
}

// silu(x) = x / (1 + exp(-x)), computed from e = exp(-|x|) <= 1 so that nothing overflows:
// x / (1 + e) for x >= 0 and x e / (1 + e) for x < 0. NaN stays NaN: the clamp returns its second
// operand when either is NaN.
void GemmMicrokernel::emit_silu_mul(int m) {
  section("silu_mul");
  TakenVec e(vec, "silu.e");
  TakenVec n(vec, "silu.n");
  TakenVec p(vec, "silu.p");
  TakenMask negative(mask, "silu.negative");
  for (int j = 0; j < outputs(); ++j) {
    const Xbyak::Zmm x = acc(m, 2 * j);
    vorps(*e, x, constant(11));
    vbroadcastss(*n, ptr[rip + constants_ + 10 * 4]);
    vmaxps(*e, *n, *e);
    vmulps(*n, *e, constant(0));
    vrndscaleps(*n, *n, 0);
    vfnmadd231ps(*e, *n, constant(1));
    vfnmadd231ps(*e, *n, constant(2));
    vbroadcastss(*p, ptr[rip + constants_ + 3 * 4]);
    for (int i = 4; i <= 8; ++i) vfmadd213ps(*p, *e, constant(i));
    vmulps(*p, *p, *e);
    vfmadd213ps(*p, *e, *e);
    vaddps(*p, *p, constant(9));
    vscalefps(*e, *p, *n);
    vpmovd2m(*negative, x);
    vmulps(x | *negative, x, *e);
    vaddps(*e, *e, constant(9));
    vdivps(x, x, *e);
    vmulps(x, x, acc(m, 2 * j + 1));
  }
}

void GemmMicrokernel::emit_residual(const Xbyak::Zmm& t, int j) {
  TakenVec tmp(vec, "residual");
  if (shape_.epilogue.c == DType::kF32) {
    vmovups(*tmp | columns(j) | T_z, ptr[residual_ + j * 64]);
  } else {
    vpmovzxwd(*tmp | columns(j) | T_z, ptr[residual_ + j * 32]);
    vpslld(*tmp, *tmp, 16);
  }
  vaddps(t, t, *tmp);
}

void GemmMicrokernel::emit_store(const Xbyak::Zmm& t, int j) {
  if (shape_.epilogue.c == DType::kF32) {
    vmovups(ptr[c_ + j * 64] | columns(j), t);
    return;
  }
  if (!shape_.bf16) {
    emit_to_bf16(t);
    vpmovdw(ptr[c_ + j * 32] | columns(j), t);
    return;
  }
  const Xbyak::Ymm half(t.getIdx());
  vcvtneps2bf16(half, t);
  vmovdqu16(ptr[c_ + j * 32] | columns(j), half);
}

// What vcvtneps2bf16 does, in the low half of each lane: to nearest even by adding just below half
// a last place, plus one where the last place is odd; denormals become zeros of their sign, NaNs
// quiet.
void GemmMicrokernel::emit_to_bf16(const Xbyak::Zmm& t) {
  constexpr uint8_t kIsNan = 0x81, kIsDenormal = 0x20;
  TakenVec rounded(vec, "rounded");
  TakenMask special(mask, "special");
  vpsrld(*rounded, t, 16);
  vpandd(*rounded, *rounded, constant(12));
  vpaddd(*rounded, *rounded, constant(13));
  vpaddd(*rounded, *rounded, t);
  vfpclassps(*special, t, kIsDenormal);
  vpandd(*rounded | *special, t, constant(11));
  vfpclassps(*special, t, kIsNan);
  vmovaps(*rounded | *special, t);
  vpsrld(t, *rounded, 16);
  vpord(t | *special, t, constant(14));
}

void GemmMicrokernel::emit_constants() {
  if (!gate_up() && shape_.bf16) return;
  section("constants");
  align(64);
  L(constants_);
  for (float f : kConstants) {
    uint32_t bits;
    std::memcpy(&bits, &f, 4);
    dd(bits);
  }
  static_assert(std::size(kConstants) == kFirstWord);
  for (uint32_t bits : kWords) dd(bits);
}

}  // namespace quern::jit
