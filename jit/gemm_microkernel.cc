#include "jit/gemm_microkernel.h"

#include <cstddef>
#include <cstring>
#include <utility>

namespace quern::jit {
namespace {

constexpr int kUnroll = 4;

// exp(r) on |r| <= ln2 / 2 as 1 + r + r^2 p(r), Cephes' single-precision coefficients: below 1 ulp
// before the final scaling, and the scaling by 2^n is exact except into subnormals.
constexpr float kSiluConstants[] = {
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
  emit_k_loop();

  Xbyak::Label not_last, done;
  cmp(arg(offsetof(GemmArgs, last)), 0);
  je(not_last, T_NEAR);
  emit_to_f32();
  emit_epilogue();
  jmp(done, T_NEAR);
  L(not_last);
  emit_store_partial();
  L(done);
  emit_return();
  if (gate_up()) emit_constants();
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

Xbyak::RegExp GemmMicrokernel::panel(int v) const {
  switch (v) {
    case 0:
      return Xbyak::RegExp(b_);
    case 1:
      return b_ + p_;
    case 2:
      return b_ + p_ * 2;
    default:
      return b_ + p3_;
  }
}

void GemmMicrokernel::emit_prefetch(int b_offset) {
  if (shape_.prefetch == 0) return;
  for (int v = 0; v < shape_.nr; ++v) prefetcht0(ptr[panel(v) + (b_offset + shape_.prefetch)]);
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

void GemmMicrokernel::emit_k_loop() {
  section("k_loop");
  const auto advance = [this](int steps) {
    add(a_, step_.a_bytes * steps);
    if (shape_.mr > 8) add(a_high_, step_.a_bytes * steps);
    add(b_, 64 * steps);
  };
  TakenGp steps(gp, "steps");
  TakenGp count(gp, "count");
  mov(*steps, k_);
  if (step_.round_up) add(*steps, (1 << step_.k_step_log2) - 1);
  shr(*steps, step_.k_step_log2);

  Xbyak::Label rest, tail;
  mov(*count, *steps);
  shr(*count, 2);
  static_assert(kUnroll == 4, "the shift above divides by the unroll");
  jz(rest, T_NEAR);
  loop(*count, [&] {
    for (int u = 0; u < kUnroll; ++u) {
      emit_prefetch(u * 64);
      emit_step(u * step_.a_bytes, u * 64);
    }
    advance(kUnroll);
  });
  L(rest);
  section("k_rest");
  and_(*steps, kUnroll - 1);
  jz(tail, T_NEAR);
  loop(*steps, [&] {
    emit_step(0, 0);
    advance(1);
  });
  L(tail);
  if (!step_.round_up) {
    section("k_tail");
    emit_k_tail();
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
  const auto constant = [this](int i) { return ptr_b[rip + constants_ + i * 4]; };
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
  const Xbyak::Ymm half(t.getIdx());
  vcvtneps2bf16(half, t);
  vmovdqu16(ptr[c_ + j * 32] | columns(j), half);
}

void GemmMicrokernel::emit_constants() {
  section("constants");
  align(64);
  L(constants_);
  for (float f : kSiluConstants) {
    uint32_t bits;
    std::memcpy(&bits, &f, 4);
    dd(bits);
  }
}

}  // namespace quern::jit
