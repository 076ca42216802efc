#include "jit/grouped_gemm_avx512.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

#include "jit/gemm_microkernel.h"

namespace quern::jit {
namespace {

/// for each group of K:
///   acc = 0
///   for each line of the panels: decode it; for m { broadcast A; for v { dot } }
///   fold: sums = fma(f32(acc minus what the zero point takes away), scale, sums), in memory
///
/// A line of 4-bit codes is eight depths of 16 columns: two dots of quads, or four of bf16 pairs.
/// One of 8-bit codes is four: two dots of pairs. Decoded lines are four depths (kU8) or two
/// (kBF16), one dot each.
///
/// With `fma` a dot of bf16 pairs is two FMAs on f32 rows, the odd elements first, under MXCSR's
/// DAZ and FTZ as vdpbf16ps has it. The folds stand outside of that.
class GroupedGemmAvx512 final : public GemmMicrokernel {
 public:
  explicit GroupedGemmAvx512(const GroupedGemmAvx512Config& config)
      : GemmMicrokernel(to_string(config), config, step(config)),
        b_type_(config.b),
        groups_(config.groups),
        fma_(config.fma),
        tile_lines_(config.tile_lines),
        vbmi_(config.vbmi) {}

 private:
  static constexpr int kEnoughAccumulators = 10;

  static Step step(const GroupedGemmAvx512Config& c) {
    const int element = c.groups.a == DType::kS8 ? 1 : c.fma ? 4 : 2;
    const int depths = 32 / bits_of(c.b);  // of a line
    return {.k_step_log2 = 0,
            .a_bytes = depths * element,
            .round_up = true,
            .turn = std::max(c.tile_lines, kUnroll)};
  }
  bool integer() const { return groups_.a == DType::kS8; }
  bool zeros_in_index() const {
    return !integer() && b_type_ == DType::kU4 && groups_.zeros == Int4Zeros::kInteger;
  }

  /// Accumulators begin at what the symmetric zero takes away, which costs a load each and no
  /// operation.
  bool begins_corrected() const { return integer() && groups_.zeros == Int4Zeros::kSymmetric; }

  void emit_setup() override;
  void emit_load_partial() override;
  void emit_store_partial() override {}  // the sums are where they belong
  void emit_k_loop() override;
  void emit_step(int a_offset, int b_offset) override;
  void emit_to_f32() override;
  void emit_constants() override;

  void emit_begin_group();
  void emit_fetch_next_part();
  void emit_lines();
  void emit_end_group();
  void emit_group_sum(const Xbyak::Reg64& to);
  void emit_group_place(const Xbyak::Reg64& to, size_t base, int group_bytes_log2);
  void emit_panels(const Vectors& b, int b_offset);
  void emit_quads(const Vectors& b, int a_offset, int set);
  void emit_pairs(const Vectors& b, int a_offset);
  void emit_fmas(const Vectors& sums, const Vectors& w, int a_offset);
  void emit_end_tile();
  const Vectors& sums_of(int element) const {
    return tile_lines_ == 0 ? all_ : element == 0 ? even_ : odd_;
  }
  int scale_bytes_log2() const { return groups_.scale == DType::kF32 ? 6 : 5; }
  int zero_bytes_log2() const { return groups_.zeros == Int4Zeros::kF32 ? 6 : 4; }

  /// Sums of integers are exact in any order: small blocks use a second set of accumulators, to
  /// hide the latency of a dot.
  Xbyak::Zmm acc_of(int set, int m, int v) const {
    return set == 0 || extra_.empty() ? acc(m, v) : extra_[static_cast<size_t>(m * shape().nr + v)];
  }

  DType b_type_;
  GroupConfig groups_;
  bool fma_;
  int tile_lines_;
  bool vbmi_;
  Vectors all_, even_, odd_;  ///< where FMAs add up, [mr][nr]
  Vectors extra_;
  Vectors lookup_zeros_;
  Xbyak::Zmm odd_mask_;
  Xbyak::Reg64 group_;
};

void GroupedGemmAvx512::emit_setup() {
  section("setup");
  if (is_float8(b_type_)) {
    emit_float8_setup(b_type_, vbmi_);
  } else if (is_packed(b_type_)) {
    if (integer()) {
      emit_nibble_setup();
    } else {
      emit_lookup_setup(groups_.zeros, b_type_);
    }
  }
  if (fma_) {
    odd_mask_ = broadcast_word("odd_mask", 0xffff0000);
    emit_save_mxcsr();
  }
  if (zeros_in_index()) lookup_zeros_ = take_vectors("z.");
  for (int m = 0; m < shape().mr; ++m) {
    for (int v = 0; v < shape().nr; ++v) {
      all_.push_back(acc(m, v));
      if (tile_lines_ == 0) continue;
      even_.push_back(vec.take("even." + std::to_string(m) + '.' + std::to_string(v)));
      odd_.push_back(vec.take("odd." + std::to_string(m) + '.' + std::to_string(v)));
    }
  }
  const int accumulators = shape().mr * shape().nr;
  if (integer() && accumulators < kEnoughAccumulators) {
    for (int i = 0; i < accumulators; ++i) {
      extra_.push_back(vec.take("acc.set1." + std::to_string(i)));
    }
  }
}

void GroupedGemmAvx512::emit_load_partial() {
  section("load_partial");
  Xbyak::Label done;
  cmp(arg(offsetof(GemmArgs, first)), 0);
  je(done, T_NEAR);
  TakenGp sums(gp, "sums");
  mov(*sums, arg(offsetof(GemmArgs, acc)));
  vpxord(acc(0, 0), acc(0, 0), acc(0, 0));
  for (int m = 0; m < shape().mr; ++m) {
    for (int v = 0; v < shape().nr; ++v) vmovups(ptr[*sums + partial_offset(m, v)], acc(0, 0));
  }
  L(done);
}

void GroupedGemmAvx512::emit_k_loop() {
  section("groups");
  group_ = gp.take("group");
  xor_(group_, group_);
  if (shape().prefetch != 0) mov(ahead(), arg(offsetof(GemmArgs, prefetch)));
  Xbyak::Label next, done;
  cmp(arg(offsetof(GemmArgs, groups)), 0);
  je(done, T_NEAR);
  align(32);
  L(next);
  emit_fetch_next_part();
  emit_begin_group();
  emit_lines();
  emit_end_group();
  inc(group_);
  cmp(group_, arg(offsetof(GemmArgs, groups)));
  jl(next, T_NEAR);
  L(done);
  gp.give_back(group_);
}

// After prefetch_steps lines the fetching goes on at prefetch_next.
void GroupedGemmAvx512::emit_fetch_next_part() {
  if (shape().prefetch == 0) return;
  TakenGp read(gp, "lines_read");
  Xbyak::Label same;
  mov(*read, first_panel());
  sub(*read, arg(offsetof(GemmArgs, b)));
  shr(*read, 6);
  cmp(*read, arg(offsetof(GemmArgs, prefetch_steps)));
  jne(same);
  mov(ahead(), arg(offsetof(GemmArgs, prefetch_next)));
  L(same);
}

void GroupedGemmAvx512::emit_begin_group() {
  if (begins_corrected()) {
    TakenGp group_sum(gp, "group_sum");
    emit_group_sum(*group_sum);
    for (int m = 0; m < shape().mr; ++m) {
      for (const Xbyak::Zmm& z : acc_row(m)) vpbroadcastd(z, ptr[*group_sum + m * 4]);
    }
  } else {
    for (int m = 0; m < shape().mr; ++m) {
      for (const Xbyak::Zmm& z : acc_row(m)) vpxord(z, z, z);
    }
  }
  for (const Vectors* more : {&extra_, &even_, &odd_}) {
    for (const Xbyak::Zmm& z : *more) vpxord(z, z, z);
  }
  if (zeros_in_index()) {
    TakenGp zero(gp, "zero");
    emit_group_place(*zero, offsetof(GemmArgs, zero), zero_bytes_log2());
    for (int v = 0; v < shape().nr; ++v) {
      emit_load_byte_zeros(lookup_zeros_[static_cast<size_t>(v)], ptr[*zero]);
      if (v + 1 < shape().nr) add(*zero, arg(offsetof(GemmArgs, zero_stride)));
    }
  }
  if (fma_) emit_load_mxcsr(true);
}

void GroupedGemmAvx512::emit_lines() {
  TakenGp count(gp, "count");
  Xbyak::Label rest, done;
  mov(*count, arg(offsetof(GemmArgs, group_steps)));
  shr(*count, std::countr_zero(static_cast<unsigned>(turn())));
  jz(rest, T_NEAR);
  emit_unrolled(*count);
  L(rest);
  mov(*count, arg(offsetof(GemmArgs, group_steps)));
  and_(*count, turn() - 1);
  jz(done, T_NEAR);
  loop(*count, [&] {
    emit_step(0, 0);
    emit_advance(1);
  });
  L(done);
}

// to = the group's entry of what `base` in GemmArgs points to.
void GroupedGemmAvx512::emit_group_place(const Xbyak::Reg64& to, size_t base,
                                         int group_bytes_log2) {
  mov(to, group_);
  shl(to, group_bytes_log2);
  add(to, arg(base));
}

void GroupedGemmAvx512::emit_end_group() {
  if (fma_) emit_load_mxcsr(false);
  if (!extra_.empty()) {
    for (int m = 0; m < shape().mr; ++m) {
      for (int v = 0; v < shape().nr; ++v) vpaddd(acc(m, v), acc(m, v), acc_of(1, m, v));
    }
  }
  GroupConfig left = groups_;
  left.subtracted = begins_corrected();
  const bool needs_sums = !left.folds_nothing();
  const bool needs_zeros = needs_sums && groups_.zeros != Int4Zeros::kSymmetric;
  // One register walks from the scales of a panel to those of the next, one along the zeros.
  TakenGp place(gp, "scale"), sums(gp, "sums");
  mov(*sums, arg(offsetof(GemmArgs, acc)));
  TakenVec scale(vec, "scale"), zero(vec, "zero");
  for (int v = 0; v < shape().nr; ++v) {
    if (v == 0 || needs_zeros) {
      emit_group_place(*place, offsetof(GemmArgs, scale), scale_bytes_log2());
      for (int i = 0; i < v; ++i) add(*place, arg(offsetof(GemmArgs, scale_stride)));
    } else {
      add(*place, arg(offsetof(GemmArgs, scale_stride)));
    }
    emit_load_scale(*scale, ptr[*place], groups_.scale);
    if (needs_zeros) {
      emit_group_place(*place, offsetof(GemmArgs, zero), zero_bytes_log2());
      for (int i = 0; i < v; ++i) add(*place, arg(offsetof(GemmArgs, zero_stride)));
      emit_load_zero(*zero, ptr[*place], groups_);
    }
    TakenGp group_sum(gp, "group_sum");
    if (needs_sums) emit_group_sum(*group_sum);
    for (int m = 0; m < shape().mr; ++m) {
      emit_fold(acc(m, v), *scale, *zero, *group_sum + m * 4, *sums + partial_offset(m, v), left);
    }
  }
}

// to = what the zero points of the group are multiplied with, of the block's first row.
void GroupedGemmAvx512::emit_group_sum(const Xbyak::Reg64& to) {
  mov(to, group_);
  imul(to, arg(offsetof(GemmArgs, group_sum_stride)));
  add(to, arg(offsetof(GemmArgs, group_sum)));
}

void GroupedGemmAvx512::emit_panels(const Vectors& b, int b_offset) {
  for (int v = 0; v < shape().nr; ++v) {
    vmovups(b[static_cast<size_t>(v)], ptr[panel(v) + b_offset]);
  }
}

void GroupedGemmAvx512::emit_step(int a_offset, int b_offset) {
  const Vectors b = take_vectors("b.");
  if (b_type_ == DType::kU8) {
    emit_panels(b, b_offset);
    emit_quads(b, a_offset, b_offset / 64 % 2);
  } else if (b_type_ == DType::kBF16) {
    emit_panels(b, b_offset);
    emit_pairs(b, a_offset);
  } else if (integer()) {
    for (int half = 0; half < 2; ++half) {
      for (int v = 0; v < shape().nr; ++v) {
        emit_nibbles(b[static_cast<size_t>(v)], ptr[panel(v) + b_offset], half == 1);
      }
      emit_quads(b, a_offset + 4 * half, half);
    }
  } else if (is_float8(b_type_)) {
    const Vectors high = take_vectors("b.high.");
    for (size_t v = 0; v < b.size(); ++v) {
      emit_float8(b[v], high[v], ptr[panel(static_cast<int>(v)) + b_offset]);
    }
    emit_pairs(b, a_offset);
    emit_pairs(high, a_offset + (fma_ ? 8 : 4));
    give_back(high);
  } else {
    const Vectors half = zeros_in_index() ? take_vectors("half.") : Vectors();
    const int pair_bytes = fma_ ? 8 : 4;
    for (int pair = 0; pair < 4; ++pair) {
      for (size_t v = 0; v < b.size(); ++v) {
        emit_lookup(b[v], ptr[panel(static_cast<int>(v)) + b_offset], pair,
                    half.empty() ? nullptr : &half[v],
                    lookup_zeros_.empty() ? nullptr : &lookup_zeros_[v]);
      }
      emit_pairs(b, a_offset + pair * pair_bytes);
    }
    give_back(half);
  }
  give_back(b);
  if (tile_lines_ != 0 && (b_offset / 64 + 1) % tile_lines_ == 0) emit_end_tile();
}

// Where the rest of a group is not a whole turn, its tiles are single lines.
void GroupedGemmAvx512::emit_end_tile() {
  for (size_t i = 0; i < all_.size(); ++i) {
    vaddps(even_[i], even_[i], odd_[i]);
    vaddps(all_[i], all_[i], even_[i]);
    vpxord(even_[i], even_[i], even_[i]);
    vpxord(odd_[i], odd_[i], odd_[i]);
  }
}

void GroupedGemmAvx512::emit_quads(const Vectors& b, int a_offset, int set) {
  const Vectors broadcasts = take_broadcasts();
  for (int m = 0; m < shape().mr; ++m) {
    const Xbyak::Zmm& a = broadcasts[static_cast<size_t>(m) % broadcasts.size()];
    vpbroadcastd(a, ptr[row(m) + a_offset]);
    for (int v = 0; v < shape().nr; ++v) {
      vpdpbusd(acc_of(set, m, v), b[static_cast<size_t>(v)], a);
    }
  }
  give_back(broadcasts);
}

void GroupedGemmAvx512::emit_pairs(const Vectors& b, int a_offset) {
  if (fma_) {
    const Vectors odd = take_vectors("odd.");
    for (size_t v = 0; v < b.size(); ++v) vpandd(odd[v], odd_mask_, b[v]);
    emit_fmas(sums_of(1), odd, a_offset + 4);
    give_back(odd);
    for (const Xbyak::Zmm& w : b) vpslld(w, w, 16);
    emit_fmas(sums_of(0), b, a_offset);
    return;
  }
  const Vectors broadcasts = take_broadcasts();
  for (int m = 0; m < shape().mr; ++m) {
    const Xbyak::Zmm& a = broadcasts[static_cast<size_t>(m) % broadcasts.size()];
    vpbroadcastd(a, ptr[row(m) + a_offset]);
    for (int v = 0; v < shape().nr; ++v) vdpbf16ps(acc(m, v), a, b[static_cast<size_t>(v)]);
  }
  give_back(broadcasts);
}

void GroupedGemmAvx512::emit_fmas(const Vectors& sums, const Vectors& w, int a_offset) {
  const Vectors broadcasts = take_broadcasts();
  for (int m = 0; m < shape().mr; ++m) {
    const Xbyak::Zmm& a = broadcasts[static_cast<size_t>(m) % broadcasts.size()];
    vbroadcastss(a, ptr[row(m) + a_offset]);
    for (int v = 0; v < shape().nr; ++v) {
      vfmadd231ps(sums[static_cast<size_t>(m * shape().nr + v)], a, w[static_cast<size_t>(v)]);
    }
  }
  give_back(broadcasts);
}

void GroupedGemmAvx512::emit_to_f32() {
  section("to_f32");
  give_back(extra_);
  give_back(even_);
  give_back(odd_);
  TakenGp sums(gp, "sums"), row_scale(gp, "row_scale");
  mov(*sums, arg(offsetof(GemmArgs, acc)));
  if (integer()) mov(*row_scale, arg(offsetof(GemmArgs, row_scale)));
  for (int m = 0; m < shape().mr; ++m) {
    for (int v = 0; v < shape().nr; ++v) {
      vmovups(acc(m, v), ptr[*sums + partial_offset(m, v)]);
      if (integer()) vmulps(acc(m, v), acc(m, v), ptr_b[*row_scale + m * 4]);
    }
  }
}

void GroupedGemmAvx512::emit_constants() {
  GemmMicrokernel::emit_constants();
  emit_lookup_table();
  emit_float8_tables();
}

}  // namespace

Result<GeneratedCode> generate(const GroupedGemmAvx512Config& config) {
  if (const char* rule = invalid(config)) return Status(StatusCode::kInvalidArgument, rule);
  return GroupedGemmAvx512(config).generate();
}

}  // namespace quern::jit
