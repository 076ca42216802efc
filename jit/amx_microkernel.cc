#include "jit/amx_microkernel.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace quern::jit {

AmxMicrokernel::AmxMicrokernel(std::string name, const GemmConfig& shape, const Step& step)
    : GemmEmitter(std::move(name), shape), step_(step) {}

void AmxMicrokernel::emit() {
  emit_prologue();
  emit_configure();
  emit_load_args();
  emit_setup();
  section("load_partial");
  emit_load_partial();
  emit_fetch_c();
  emit_k_loop();
  if (!step_.round_up) emit_k_tail();
  for (const Xbyak::Reg64& b : b_) gp.give_back(b);
  gp.give_back(a_);
  if (row_tiles() == 2) gp.give_back(a_high_);
  gp.give_back(s_);
  gp.give_back(k_);

  Xbyak::Label not_last, done, keep;
  cmp(arg(offsetof(GemmArgs, last)), 0);
  je(not_last, T_NEAR);
  section("stage");
  emit_stage();
  section("to_f32");
  emit_begin_to_f32();
  emit_begin_rows();
  emit_keep_bias();
  const Vectors row = take_vectors("row.");
  emit_rows([&] {
    emit_row_to_f32(row);
    emit_finish_row(row);
    emit_next_row_to_f32();
    emit_next_row();
  });
  jmp(done, T_NEAR);

  L(not_last);
  section("store_partial");
  emit_store_partial();

  L(done);
  section("release");
  cmp(arg(offsetof(GemmArgs, release)), 0);
  je(keep);
  tilerelease();
  L(keep);
  emit_return();
  emit_constants();
  emit_palettes();
}

// The table lies in the kernel's own code, which nobody can write to, one entry for each number of
// rows: no thread ever fills in a configuration that another one loads.
void AmxMicrokernel::emit_configure() {
  section("configure");
  TakenGp entry(gp, "entry");
  TakenGp table(gp, "palettes");
  Xbyak::Label done;
  cmp(arg(offsetof(GemmArgs, configure)), 0);
  je(done);
  mov(*entry, arg(offsetof(GemmArgs, m)));
  shl(*entry, 6);
  lea(*table, ptr[rip + palettes_]);
  const int first = shape().mr - 15;
  ldtilecfg(ptr[*table + *entry - first * 64]);
  L(done);
}

void AmxMicrokernel::emit_palettes() {
  section("constants");
  align(64);
  L(palettes_);
  for (int m = shape().mr - 15; m <= shape().mr; ++m) {
    const auto low = static_cast<uint8_t>(std::min(m, 16));
    const auto high = static_cast<uint8_t>(row_tiles() == 2 ? m - 16 : m);
    const auto whole = static_cast<uint8_t>(step_.tile_bytes / 4);  // rows of a tile of weights
    const bool a5 = row_tiles() == 2;                               // else it is one of weights
    const uint8_t rows[8] = {low, low, high, high, low, a5 ? high : whole, whole, whole};
    const int a_bytes = step_.tile_bytes;
    const int bytes[8] = {64, 64, 64, 64, a_bytes, a5 ? a_bytes : 64, 64, 64};
    db(1);                               // the palette: 8 tiles of up to 16 rows of 64 bytes
    for (int i = 1; i < 16; ++i) db(0);  // start_row, reserved
    for (const int b : bytes) dw(static_cast<uint16_t>(b));  // of a row
    for (int i = 8; i < 16; ++i) dw(0);
    for (const uint8_t r : rows) db(r);
    for (int i = 8; i < 16; ++i) db(0);
  }
}

void AmxMicrokernel::emit_load_args() {
  section("load_args");
  const auto load = [this](const std::string& name, size_t offset) {
    const Xbyak::Reg64 reg = gp.take(name);
    mov(reg, arg(offset));
    return reg;
  };
  tiles_ = load("tiles", offsetof(GemmArgs, tiles));
  line_ = gp.take("64");
  mov(line_, 64);
  a_ = load("a", offsetof(GemmArgs, a));
  s_ = load("a_stride", offsetof(GemmArgs, a_stride));
  if (row_tiles() == 2) {
    a_high_ = gp.take("a.row16");
    mov(a_high_, s_);
    shl(a_high_, 4);
    add(a_high_, a_);
  }
  b_.push_back(load("b.0", offsetof(GemmArgs, b)));
  for (int v = 1; v < shape().nr; ++v) {
    b_.push_back(gp.take("b." + std::to_string(v)));
    mov(b_.back(), b_[static_cast<size_t>(v - 1)]);
    add(b_.back(), arg(offsetof(GemmArgs, panel_stride)));
  }
  k_ = load("k", offsetof(GemmArgs, k));
}

void AmxMicrokernel::emit_zero_tiles() {
  for (int t = 0; t < row_tiles(); ++t) {
    for (int v = 0; v < shape().nr; ++v) tilezero(acc(t, v));
  }
}

// Every accumulator and its place in rows of row_bytes() from `base`.
void AmxMicrokernel::emit_for_tiles(const Xbyak::Reg64& base,
                                    void (AmxMicrokernel::*move)(const Xbyak::Tmm&,
                                                                 const Xbyak::Address&)) {
  TakenGp pitch(gp, "pitch");
  mov(*pitch, row_bytes());
  for (int t = 0; t < row_tiles(); ++t) {
    for (int v = 0; v < shape().nr; ++v) {
      (this->*move)(acc(t, v), ptr[base + *pitch + (t * 16 * row_bytes() + v * 64)]);
    }
  }
}

void AmxMicrokernel::emit_load_partial() {
  Xbyak::Label zero, done;
  cmp(arg(offsetof(GemmArgs, first)), 0);
  jne(zero, T_NEAR);
  {
    TakenGp partial(gp, "partial");
    mov(*partial, arg(offsetof(GemmArgs, acc)));
    emit_for_tiles(*partial, &AmxMicrokernel::emit_load);
  }
  jmp(done, T_NEAR);
  L(zero);
  emit_zero_tiles();
  L(done);
}

void AmxMicrokernel::emit_store_partial() {
  TakenGp partial(gp, "partial");
  mov(*partial, arg(offsetof(GemmArgs, acc)));
  emit_for_tiles(*partial, &AmxMicrokernel::emit_save);
}

void AmxMicrokernel::emit_save_tiles(const Xbyak::Reg64& base) {
  emit_for_tiles(base, &AmxMicrokernel::emit_save);
}

void AmxMicrokernel::emit_walk(const Xbyak::RegExp& first) {
  row_ = gp.take("row");
  lea(row_, ptr[first]);
}

void AmxMicrokernel::emit_stage() {
  static_assert(kStagedC == 0, "the walk begins at tiles()");
  emit_save_tiles(tiles_);
  emit_walk(Xbyak::RegExp(tiles_));
}

// The epilogue's lines of C, a K loop ahead of their use, as GemmMicrokernel does.
void AmxMicrokernel::emit_fetch_c() {
  section("fetch_rows");
  const int bytes = outputs() * 16 * static_cast<int>(size_of(shape().epilogue.c));
  Xbyak::Label not_yet;
  cmp(arg(offsetof(GemmArgs, last)), 0);
  je(not_yet, T_NEAR);
  {
    TakenGp left(gp, "rows_left");
    TakenGp row(gp, "c.row");
    mov(*left, arg(offsetof(GemmArgs, m)));
    mov(*row, arg(offsetof(GemmArgs, c)));
    loop(*left, [&] {
      for (int offset = 0; offset < bytes + 64; offset += 64) {
        prefetchw(ptr[*row + std::min(offset, bytes - 1)]);
      }
      add(*row, arg(offsetof(GemmArgs, c_stride)));
    });
  }
  L(not_yet);
}

// steps = what is to be done after the part that is under way, whose turns `count` holds: first the
// part that fetches ahead at args.prefetch, then the rest at args.prefetch_next.
void AmxMicrokernel::emit_k_loop() {
  section("k_loop");
  TakenGp count(gp, "count");
  mov(*count, k_);
  if (step_.round_up) add(*count, (1 << step_.k_step_log2) - 1);
  shr(*count, step_.k_step_log2);
  Xbyak::Label done;
  if (shape().prefetch == 0) {
    jz(done, T_NEAR);
    emit_turns(*count);
    L(done);
    return;
  }
  TakenGp steps(gp, "steps");
  mov(*steps, *count);
  ahead_ = gp.take("prefetch");
  Xbyak::Label part, part_done;
  if (streams()) {
    mov(ahead_, arg(offsetof(GemmArgs, prefetch)));
    sub(ahead_, panel(0));
    mov(*count, arg(offsetof(GemmArgs, prefetch_steps)));
    shr(*count, step_.panel_lines == 16 ? 4 : 3);
    jz(part_done, T_NEAR);
    sub(*steps, *count);
  } else {
    jmp(part_done, T_NEAR);
  }
  L(part);
  emit_turns(*count);
  L(part_done);
  mov(ahead_, arg(offsetof(GemmArgs, prefetch_next)));
  if (streams()) sub(ahead_, panel(0));
  mov(*count, *steps);
  mov(Xbyak::Reg32((*steps).getIdx()), 0);
  test(*count, *count);
  jnz(part, T_NEAR);
  gp.give_back(ahead_);
}

void AmxMicrokernel::emit_begin_fetching() {
  if (shape().prefetch == 0) return;
  ahead_ = gp.take("prefetch");
  mov(ahead_, arg(offsetof(GemmArgs, prefetch_next)));
}

void AmxMicrokernel::emit_end_fetching() {
  if (shape().prefetch != 0) gp.give_back(ahead_);
}

void AmxMicrokernel::emit_turns(const Xbyak::Reg64& count) {
  loop(count, [&] {
    emit_fetch_weights();
    emit_prefetch();
    emit_step(a_, a_high_, s_);
    emit_after_step();
    add(a_, step_.tile_bytes);
    if (row_tiles() == 2) add(a_high_, step_.tile_bytes);
    for (const Xbyak::Reg64& b : b_) add(b, step_.panel_lines * 64);
  });
}

// Streams lie as far from one another as the panels do, so that one distance serves them all.
void AmxMicrokernel::emit_prefetch() {
  if (shape().prefetch == 0) return;
  if (streams()) {
    for (int i = 0; i < step_.panel_lines; ++i) {
      for (const Xbyak::Reg64& b : b_) prefetcht0(ptr[b + ahead_ + i * 64]);
    }
    return;
  }
  const int lines = shape().prefetch * step_.panel_lines / kAhead;
  for (int i = 0; i < lines; ++i) prefetcht1(ptr[ahead_ + i * 64]);
  add(ahead_, lines * 64);
}

// Loads between the dot products, each of them one dot product ahead of its first use.
void AmxMicrokernel::emit_step(const Xbyak::Reg64& a0, const Xbyak::Reg64& a1,
                               const Xbyak::Reg64& a_stride) {
  emit_load_weights(b_tile(0), 0);
  tileloadd(a_tile(0), ptr[a0 + a_stride]);
  if (row_tiles() == 2) tileloadd(a_tile(1), ptr[a1 + a_stride]);
  for (int v = 0; v < shape().nr; ++v) {
    for (int t = 0; t < row_tiles(); ++t) {
      emit_dot(acc(t, v), a_tile(t), b_tile(v));
      if (t == 0 && v + 1 < shape().nr) emit_load_weights(b_tile(v + 1), v + 1);
    }
  }
}

void AmxMicrokernel::emit_load_weights(const Xbyak::Tmm& b, int v) {
  tileloadd(b, ptr[panel(v) + line_]);
}

// The rest of each row of A, copied with zeros behind it: a tile that reached past the row would
// multiply what lies there, and zeros in the weights do not cancel a NaN.
void AmxMicrokernel::emit_k_tail() {
  section("k_tail");
  Xbyak::Label done;
  and_(k_, (1 << step_.k_step_log2) - 1);
  jz(done, T_NEAR);
  {
    TakenMask present(mask, "k_tail");
    TakenGp bits(gp, "bits");
    emit_low_bits(*bits, k_);
    kmovd(*present, Xbyak::Reg32((*bits).getIdx()));
    TakenGp left(gp, "rows_left");
    TakenVec part(vec, "tail");
    mov(*left, arg(offsetof(GemmArgs, m)));
    lea(*bits, ptr[tiles_ + kTailOfA]);
    loop(*left, [&] {
      vmovdqu16(*part | *present | T_z, ptr[a_]);
      vmovdqu64(ptr[*bits], *part);
      add(a_, s_);
      add(*bits, 64);
    });
  }
  emit_fetch_weights();
  lea(a_, ptr[tiles_ + kTailOfA]);
  if (row_tiles() == 2) lea(a_high_, ptr[tiles_ + kTailOfA + kTileBytes]);
  emit_step(a_, a_high_, line_);
  L(done);
}

}  // namespace quern::jit
