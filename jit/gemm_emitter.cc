#include "jit/gemm_emitter.h"

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

GemmEmitter::GemmEmitter(std::string name, const GemmConfig& shape)
    : CodeEmitter(std::move(name), /*callee_saved=*/6, shape.poison), shape_(shape) {}

void GemmEmitter::emit_begin_rows() {
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
}

void GemmEmitter::emit_next_row() {
  add(c_, arg(offsetof(GemmArgs, c_stride)));
  if (shape_.epilogue.residual) add(residual_, arg(offsetof(GemmArgs, residual_stride)));
}

void GemmEmitter::emit_column_masks(const Xbyak::Reg64& n) {
  TakenGp bits(gp, "column_bits");
  emit_low_bits(*bits, n);
  for (int j = 0; j < outputs(); ++j) {
    columns_.push_back(mask.take("columns." + std::to_string(j)));
    kmovw(columns_.back(), Xbyak::Reg32((*bits).getIdx()));
    if (stores_pair(j)) {
      column_pairs_.push_back(mask.take("column_pairs." + std::to_string(j / 2)));
      kmovd(column_pairs_.back(), Xbyak::Reg32((*bits).getIdx()));
    }
    if (j + 1 < outputs()) shr(*bits, 16);
  }
}

void GemmEmitter::emit_finish_row(const Vectors& row) {
  if (shape_.epilogue.bias) {
    for (int v = 0; v < shape_.nr; ++v) emit_bias(row[static_cast<size_t>(v)], v);
  }
  if (gate_up()) emit_silu_mul(row);
  const auto value = [&](int j) { return row[static_cast<size_t>(gate_up() ? 2 * j : j)]; };
  for (int j = 0; shape_.epilogue.residual && j < outputs(); ++j) emit_residual(value(j), j);
  for (int j = 0; j < outputs(); ++j) {
    if (stores_pair(j)) {
      emit_store_pair(value(j), value(j + 1), j);
      ++j;
    } else {
      emit_store(value(j), j);
    }
  }
}

void GemmEmitter::emit_keep_bias() {
  if (!shape_.epilogue.bias) return;
  bias_ = take_vectors("bias.");
  for (int v = 0; v < shape_.nr; ++v) emit_load_bias(bias_[static_cast<size_t>(v)], v);
}

void GemmEmitter::emit_bias(const Xbyak::Zmm& t, int v) {
  if (!bias_.empty()) {
    vaddps(t, t, bias_[static_cast<size_t>(v)]);
    return;
  }
  TakenVec tmp(vec, "bias");
  emit_load_bias(*tmp, v);
  vaddps(t, t, *tmp);
}

// Masked: the bias ends with its last element, and the byte after it may not be mapped.
void GemmEmitter::emit_load_bias(const Xbyak::Zmm& to, int v) {
  const int j = gate_up() ? v / 2 : v;
  const bool up = gate_up() && v % 2 == 1;
  TakenGp base(gp, "bias");
  mov(*base, arg(up ? offsetof(GemmArgs, bias_up) : offsetof(GemmArgs, bias)));
  vmovups(to | columns(j) | T_z, ptr[*base + j * 64]);
}

// silu(x) = x / (1 + exp(-x)), computed from e = exp(-|x|) <= 1 so that nothing overflows:
// x / (1 + e) for x >= 0 and x e / (1 + e) for x < 0. NaN stays NaN: the clamp returns its second
// operand when either is NaN.
void GemmEmitter::emit_silu_mul(const Vectors& row) {
  section("silu_mul");
  TakenVec e(vec, "silu.e");
  TakenVec n(vec, "silu.n");
  TakenVec p(vec, "silu.p");
  TakenMask negative(mask, "silu.negative");
  for (int j = 0; j < outputs(); ++j) {
    const Xbyak::Zmm& x = row[static_cast<size_t>(2 * j)];
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
    vmulps(x, x, row[static_cast<size_t>(2 * j + 1)]);
  }
}

void GemmEmitter::emit_residual(const Xbyak::Zmm& t, int j) {
  TakenVec tmp(vec, "residual");
  if (shape_.epilogue.c == DType::kF32) {
    vmovups(*tmp | columns(j) | T_z, ptr[residual_ + j * 64]);
  } else {
    vpmovzxwd(*tmp | columns(j) | T_z, ptr[residual_ + j * 32]);
    vpslld(*tmp, *tmp, 16);
  }
  vaddps(t, t, *tmp);
}

void GemmEmitter::emit_store(const Xbyak::Zmm& t, int j) {
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

// A whole line of C.
void GemmEmitter::emit_store_pair(const Xbyak::Zmm& low, const Xbyak::Zmm& high, int j) {
  vcvtne2ps2bf16(low, high, low);
  vmovdqu16(ptr[c_ + j * 32] | column_pairs_[static_cast<size_t>(j / 2)], low);
}

// What vcvtneps2bf16 does, in the low half of each lane: to nearest even by adding just below half
// a last place, plus one where the last place is odd; denormals become zeros of their sign, NaNs
// quiet.
void GemmEmitter::emit_to_bf16(const Xbyak::Zmm& t) {
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

void GemmEmitter::emit_constants() {
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

GemmEmitter::Vectors GemmEmitter::take_vectors(const char* name) {
  Vectors vectors;
  for (int v = 0; v < shape_.nr; ++v) vectors.push_back(vec.take(name + std::to_string(v)));
  return vectors;
}

void GemmEmitter::give_back(const Vectors& vectors) {
  for (const Xbyak::Zmm& z : vectors) vec.give_back(z);
}

void GemmEmitter::emit_correct_row(const Vectors& row, const Xbyak::RegExp& row_sum) {
  TakenVec correction(vec, "correction");
  vpbroadcastd(*correction, ptr[row_sum]);
  vpslld(*correction, *correction, 7);
  for (const Xbyak::Zmm& acc : row) {
    vpsubd(acc, acc, *correction);
    vcvtdq2ps(acc, acc);
  }
}

void GemmEmitter::emit_widen(const Xbyak::Zmm& acc, const Xbyak::Zmm& low, const Xbyak::Zmm& high,
                             const Xbyak::RegExp& partial) {
  vextracti64x4(Xbyak::Ymm(high.getIdx()), acc, 1);
  vpmovsxdq(low, Xbyak::Ymm(acc.getIdx()));
  vpmovsxdq(high, Xbyak::Ymm(high.getIdx()));
  Xbyak::Label first;
  cmp(arg(offsetof(GemmArgs, first)), 0);
  jne(first);
  vpaddq(low, low, ptr[partial]);
  vpaddq(high, high, ptr[partial + 64]);
  L(first);
}

void GemmEmitter::emit_store_wide(const Xbyak::Zmm& acc, const Xbyak::RegExp& partial) {
  TakenVec low(vec, "low");
  TakenVec high(vec, "high");
  emit_widen(acc, *low, *high, partial);
  vmovups(ptr[partial], *low);
  vmovups(ptr[partial + 64], *high);
}

void GemmEmitter::emit_correct_wide(const Xbyak::Zmm& acc, const Xbyak::RegExp& row_sum,
                                    const Xbyak::RegExp& partial) {
  TakenVec correction(vec, "correction");
  TakenVec low(vec, "low");
  TakenVec high(vec, "high");
  TakenGp sum(gp, "sum");
  emit_widen(acc, *low, *high, partial);
  movsxd(*sum, dword[row_sum]);
  vpbroadcastq(*correction, *sum);
  vpsllq(*correction, *correction, 7);
  vpsubq(*low, *low, *correction);
  vpsubq(*high, *high, *correction);
  const Xbyak::Ymm low_f32((*low).getIdx());
  const Xbyak::Ymm high_f32((*high).getIdx());
  vcvtqq2ps(low_f32, *low);
  vcvtqq2ps(high_f32, *high);
  vinsertf64x4(acc, *low, high_f32, 1);
}

// The scales meet first, so that the order is one for every level.
void GemmEmitter::emit_scale_row(const Vectors& row, const Xbyak::RegExp& row_scale,
                                 const Xbyak::Reg64& col_scale) {
  TakenVec s_row(vec, "row_scale");
  TakenVec scale(vec, "scale");
  vbroadcastss(*s_row, ptr[row_scale]);
  for (int v = 0; v < shape_.nr; ++v) {
    const Xbyak::Zmm& t = row[static_cast<size_t>(v)];
    vmulps(*scale, *s_row, ptr[col_scale + v * 64]);
    vmulps(t, t, *scale);
  }
}

void GemmEmitter::emit_scale_row(const Vectors& row, const Xbyak::RegExp& row_scale,
                                 const Vectors& col_scale) {
  TakenVec s_row(vec, "row_scale");
  TakenVec scale(vec, "scale");
  vbroadcastss(*s_row, ptr[row_scale]);
  for (size_t v = 0; v < row.size(); ++v) {
    vmulps(*scale, *s_row, col_scale[v]);
    vmulps(row[v], row[v], *scale);
  }
}

void GemmEmitter::emit_load_scale(const Xbyak::Zmm& to, const Xbyak::Address& from, DType type) {
  switch (type) {
    case DType::kF16:
      vcvtph2ps(to, from);
      return;
    case DType::kBF16:
      vpmovzxwd(to, from);
      vpslld(to, to, 16);
      return;
    default:
      vmovups(to, from);
  }
}

void GemmEmitter::emit_load_zero(const Xbyak::Zmm& to, const Xbyak::Address& from,
                                 const GroupConfig& groups) {
  if (groups.folds_nothing() || groups.zeros == Int4Zeros::kSymmetric) return;
  if (groups.zeros == Int4Zeros::kF32) {
    vmovups(to, from);
    return;
  }
  vpmovzxbd(to, from);
  if (!groups.wide) vcvtdq2ps(to, to);
}

// f32(acc - z sum) of integers, in whichever way is exact: the symmetric zero came with the sum;
// integers below 2^24 are f32 as well, and a fused multiply-add rounds them once, to themselves.
void GemmEmitter::emit_fold(const Xbyak::Zmm& acc, const Xbyak::Zmm& scale, const Xbyak::Zmm& zero,
                            const Xbyak::RegExp& group_sum, const Xbyak::RegExp& sums,
                            const GroupConfig& groups) {
  const bool integer = groups.a == DType::kS8;
  if (!groups.folds_nothing()) {
    if (groups.zeros == Int4Zeros::kSymmetric) {
      vpaddd(acc, acc, ptr_b[group_sum]);
      vcvtdq2ps(acc, acc);
    } else if (groups.zeros == Int4Zeros::kInteger && groups.wide) {
      TakenVec product(vec, "z*sum");
      vpmulld(*product, zero, ptr_b[group_sum]);
      vpsubd(acc, acc, *product);
      vcvtdq2ps(acc, acc);
    } else {
      if (integer) vcvtdq2ps(acc, acc);
      vfnmadd231ps(acc, zero, ptr_b[group_sum]);
    }
  } else if (integer) {
    vcvtdq2ps(acc, acc);
  }
  vfmadd213ps(acc, scale, ptr[sums]);
  vmovups(ptr[sums], acc);
}

}  // namespace quern::jit
