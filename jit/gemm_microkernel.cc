#include "jit/gemm_microkernel.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace quern::jit {

GemmMicrokernel::GemmMicrokernel(std::string name, const GemmConfig& shape, const Step& step)
    : GemmEmitter(std::move(name), shape), step_(step) {}

void GemmMicrokernel::emit() {
  emit_prologue();
  for (int m = 0; m < shape().mr; ++m) {
    for (int v = 0; v < shape().nr; ++v) {
      acc_.push_back(vec.take("acc." + std::to_string(m) + '.' + std::to_string(v)));
    }
  }
  Xbyak::Label block, not_yet, not_last, done;
  L(block);
  emit_load_args();
  emit_setup();
  emit_load_partial();
  section("fetch_rows");
  cmp(arg(offsetof(GemmArgs, last)), 0);
  je(not_yet, T_NEAR);
  emit_fetch_rows(offsetof(GemmArgs, c), offsetof(GemmArgs, c_stride), true);
  if (shape().epilogue.residual) {
    emit_fetch_rows(offsetof(GemmArgs, residual), offsetof(GemmArgs, residual_stride), false);
  }
  L(not_yet);
  emit_k_loop();
  emit_teardown();

  cmp(arg(offsetof(GemmArgs, last)), 0);
  je(not_last, T_NEAR);
  emit_to_f32();
  emit_begin_rows();
  for (int m = 0; m < shape().mr; ++m) {
    emit_finish_row(acc_row(m));
    if (m + 1 < shape().mr) emit_next_row();
  }
  jmp(done, T_NEAR);
  L(not_last);
  emit_store_partial();
  L(done);
  emit_next_block(block);
  emit_return();
  emit_constants();
}

// The caller's arguments hold what moves: every register is taken while a block is computed.
void GemmMicrokernel::emit_next_block(const Xbyak::Label& block) {
  section("next_block");
  Xbyak::Label none;
  cmp(arg(offsetof(GemmArgs, blocks)), 1);
  jle(none, T_NEAR);
  dec(arg(offsetof(GemmArgs, blocks)));
  TakenGp step(gp, "step");
  const auto move_rows = [&](size_t base, size_t stride) {
    imul(*step, arg(stride), shape().mr);
    add(arg(base), *step);
  };
  move_rows(offsetof(GemmArgs, a), offsetof(GemmArgs, a_stride));
  move_rows(offsetof(GemmArgs, c), offsetof(GemmArgs, c_stride));
  if (shape().epilogue.residual) {
    move_rows(offsetof(GemmArgs, residual), offsetof(GemmArgs, residual_stride));
  }
  mov(*step, arg(offsetof(GemmArgs, acc_step)));
  add(arg(offsetof(GemmArgs, acc)), *step);
  for (const size_t words : {offsetof(GemmArgs, row_scale), offsetof(GemmArgs, row_sum),
                             offsetof(GemmArgs, group_sum)}) {
    add(arg(words), 4 * shape().mr);
  }
  jmp(block, T_NEAR);
  L(none);
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
  if (shape().mr > 1) s_ = load("a_stride", offsetof(GemmArgs, a_stride));
  if (shape().mr > 3) {
    s3_ = gp.take("a_stride*3");
    lea(s3_, ptr[s_ + s_ * 2]);
  }
  if (shape().mr > 5) {
    s5_ = gp.take("a_stride*5");
    lea(s5_, ptr[s_ + s_ * 4]);
  }
  if (shape().mr > 7) {
    s7_ = gp.take("a_stride*7");
    lea(s7_, ptr[s3_ + s_ * 4]);
  }
  if (shape().mr > 8) {
    a_high_ = gp.take("a.row8");
    lea(a_high_, ptr[a_ + s_ * 8]);
  }
  if (shape().nr > 1) p_ = load("panel_stride", offsetof(GemmArgs, panel_stride));
  if (shape().nr > 3) {
    p3_ = gp.take("panel_stride*3");
    lea(p3_, ptr[p_ + p_ * 2]);
  }
  if (shape().prefetch != 0) ahead_ = gp.take("prefetch");
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

GemmMicrokernel::Vectors GemmMicrokernel::take_broadcasts() {
  Vectors vectors = {vec.take("a.0")};
  if (vec.free() > 0) vectors.push_back(vec.take("a.1"));
  return vectors;
}

// What this call reads itself goes to L1. What another call will read goes to L2: it must not push
// this one's rows and panels out of L1. But where a turn of one or two panels takes four lines, few
// blocks of rows share a chunk, and the next one is read so soon that it is late if it waits in L2
// (10 % of a bmm at M = 16; three panels lose 3 % of an int8 product at M = 20: bench/NOTES.md).
// Spread over the turn, because a burst of misses fills the line fill buffers that the turn's own
// loads need.
void GemmMicrokernel::emit_prefetch(int step) {
  if (streams()) {
    for (int v = 0; v < shape().nr; ++v) prefetcht0(ptr[panel_of(ahead_, v) + step * 64]);
    return;
  }
  const int before = step / kUnroll * shape().prefetch;
  for (int i = 0; i < shape().prefetch; ++i) {
    if (i * kUnroll / shape().prefetch != step % kUnroll) continue;
    const Xbyak::Address line = ptr[ahead_ + (before + i) * 64];
    if (shape().prefetch == kUnroll && shape().nr <= 2) {
      prefetcht0(line);
    } else {
      prefetcht1(line);
    }
  }
}

// The epilogue's lines of C and of the residual, a K loop ahead of their use: rows lie far apart,
// so that no hardware prefetcher sees them coming. Without this a 64-row block of C that is not in
// L2 cost 15 % of a 64 x 4096 x 4096 int8 product, and 256 rows of bmm 6 % (bench/NOTES.md). A line
// that begins before the block's columns came with the block to the left, or, of a thread's first
// block, comes with its store.
void GemmMicrokernel::emit_fetch_rows(size_t base, size_t stride, bool for_write) {
  const int bytes = outputs() * 16 * static_cast<int>(size_of(shape().epilogue.c));
  TakenGp row(gp, "row");
  mov(*row, arg(base));
  for (int m = 0; m < shape().mr; ++m) {
    for (int offset = bytes - 1; offset >= 0; offset -= 64) {
      const Xbyak::Address line = ptr[*row + offset];
      if (for_write) {
        prefetchw(line);
      } else {
        prefetcht0(line);
      }
    }
    if (m + 1 < shape().mr) add(*row, arg(stride));
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
    for (int m = 0; m < shape().mr; ++m) {
      for (int v = 0; v < shape().nr; ++v) vmovups(acc(m, v), ptr[*partial + partial_offset(m, v)]);
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
  for (int m = 0; m < shape().mr; ++m) {
    for (int v = 0; v < shape().nr; ++v) vmovups(ptr[*partial + partial_offset(m, v)], acc(m, v));
  }
}

// `count` turns.
void GemmMicrokernel::emit_unrolled(const Xbyak::Reg64& count) {
  loop(count, [&] {
    for (int u = 0; u < turn(); ++u) {
      emit_prefetch(u);
      emit_step(u * step_.a_bytes, u * 64);
    }
    emit_advance(turn());
    const int fetched = streams() ? turn() : turn() / kUnroll * shape().prefetch;
    if (fetched != 0) add(ahead_, 64 * fetched);
  });
  // The next block, or the next group, goes on from here.
  if (shape().prefetch != 0 && !streams()) mov(arg(offsetof(GemmArgs, prefetch_next)), ahead_);
}

void GemmMicrokernel::emit_advance(int steps) {
  add(a_, step_.a_bytes * steps);
  if (shape().mr > 8) add(a_high_, step_.a_bytes * steps);
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
  if (shape().prefetch != 0) {
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
  if (shape().prefetch != 0) gp.give_back(ahead_);
}

void GemmMicrokernel::emit_save_mxcsr() {
  constexpr uint32_t kDazFtz = 0x8040;
  TakenGp control(gp, "control"), mxcsr(gp, "mxcsr");
  const Xbyak::Reg32 mxcsr32((*mxcsr).getIdx());
  mov(*control, arg(offsetof(GemmArgs, control)));
  stmxcsr(dword[*control]);
  mov(mxcsr32, dword[*control]);
  or_(mxcsr32, kDazFtz);
  mov(dword[*control + 4], mxcsr32);
}

void GemmMicrokernel::emit_load_mxcsr(bool flushing) {
  TakenGp control(gp, "control");
  mov(*control, arg(offsetof(GemmArgs, control)));
  ldmxcsr(dword[*control + (flushing ? 4 : 0)]);
}

void GemmMicrokernel::emit_scale_columns() {
  section("scale_columns");
  TakenGp col_scale(gp, "col_scale");
  mov(*col_scale, arg(offsetof(GemmArgs, col_scale)));
  for (int m = 0; m < shape().mr; ++m) {
    for (int v = 0; v < shape().nr; ++v) vmulps(acc(m, v), acc(m, v), ptr[*col_scale + v * 64]);
  }
}

}  // namespace quern::jit
