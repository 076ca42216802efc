#pragma once

#include <string>
#include <vector>

#include "jit/gemm_args.h"
#include "jit/gemm_config.h"
#include "jit/gemm_emitter.h"

namespace quern::jit {

/// What every AMX GEMM micro-kernel shares: tile configuration, the K loop over whole tiles,
/// partial sums between cuts of K, and the way of a block of C from tiles through scratch to the
/// epilogue. A derived generator says which dot product it is, where tiles of weights come from,
/// and how a row of accumulators becomes f32.
///
///               B0    B1              mr 32: rows 0..15 and 16..31, at most two panels
///        A0    acc00 acc01            (mr 16: one tile of rows, at most four panels)
///        A1    acc10 acc11
///
/// Four loads for four dot products of 16 cycles each: the loads need half of that time. A block
/// has any number of rows up to mr at run time: the configuration has that many, so nothing beyond
/// them is read.
///
/// loop nest: k in tiles of 64 bytes a row { load B0, A0; dot; load A1; dot; load B1; dot; dot };
/// store tiles to scratch; for m { load a row; to f32; epilogue }
class AmxMicrokernel : public GemmEmitter {
 protected:
  struct Step {
    int k_step_log2 = 0;   ///< depth of a tile of A: 64 bytes of each row
    int panel_lines = 16;  ///< lines of a packed panel that hold that depth
    int tile_bytes =
        64;  ///< of a row of A, a multiple of 4; a tile of weights has a line for each 4
    bool round_up = false;  ///< A is padded: a partial last step is run as a whole one
  };

  AmxMicrokernel(std::string name, const GemmConfig& shape, const Step& step);

  void emit() override;

  /// Once, before the K loop.
  virtual void emit_setup() {}
  virtual void emit_dot(const Xbyak::Tmm& acc, const Xbyak::Tmm& a, const Xbyak::Tmm& b) = 0;
  /// The steps of this call. Overridden where more than steps is in it.
  virtual void emit_k_loop();
  /// Consecutive lines are fetched from GemmArgs::prefetch_next on, for overrides of emit_k_loop().
  void emit_begin_fetching();
  void emit_end_fetching();
  /// `count` steps, at least one; destroys it.
  void emit_turns(const Xbyak::Reg64& count);
  /// Brings the weights of one step into the place that emit_load_weights() reads.
  virtual void emit_fetch_weights() {}
  virtual void emit_load_weights(const Xbyak::Tmm& b, int v);
  virtual void emit_after_step() {}
  /// Pointers that the two below need; they stay taken.
  virtual void emit_begin_to_f32() = 0;
  /// The staged row() of raw accumulators becomes nr vectors of f32, scales applied.
  virtual void emit_row_to_f32(const Vectors& to) = 0;
  virtual void emit_next_row_to_f32() {}
  /// Tiles start from zero or from GemmArgs::acc, and go back there where it is not the last call.
  /// Overridden where partial sums are wider than the accumulator.
  virtual void emit_load_partial();
  virtual void emit_store_partial();

  void emit_zero_tiles();
  /// What emit_row_to_f32() reads is brought into rows of row_bytes() in memory, and emit_walk()
  /// begins there: the tiles, to GemmArgs::tiles.
  virtual void emit_stage();
  /// row() = `first`, the first of the rows that emit_rows() walks along; row() stays taken.
  void emit_walk(const Xbyak::RegExp& first);
  /// Every accumulator to its place in rows of row_bytes() from `base`.
  void emit_save_tiles(const Xbyak::Reg64& base);
  /// `body` once for each row of the block.
  template <typename Body>
  void emit_rows(const Body& body) {
    TakenGp left(gp, "rows_left");
    mov(*left, arg(offsetof(GemmArgs, m)));
    loop(*left, [&] {
      body();
      add(row_, row_bytes());
    });
  }

  int row_tiles() const { return shape().mr / 16; }
  int row_bytes() const { return shape().nr * 64; }
  Xbyak::RegExp row() const { return Xbyak::RegExp(row_); }
  const Xbyak::Reg64& panel(int v) const { return b_[static_cast<size_t>(v)]; }
  const Xbyak::Reg64& line() const { return line_; }  ///< holds 64
  const Xbyak::Reg64& tiles() const { return tiles_; }

  // Where things are in GemmArgs::tiles.
  static constexpr int kTileBytes = 1024;
  static constexpr int kStagedC = 0;
  static constexpr int kTailOfA = 4 * kTileBytes;
  static constexpr int kWeights = 6 * kTileBytes;

 private:
  static constexpr int kAhead = 4;  ///< a turn of GemmConfig::prefetch is so many lines of a panel

  Xbyak::Tmm acc(int t, int v) const { return Xbyak::Tmm(row_tiles() == 2 ? 2 * t + v : v); }
  Xbyak::Tmm a_tile(int t) const { return Xbyak::Tmm(4 + t); }
  /// Two panels use the same two registers for both values of mr, so that one configuration can
  /// serve both.
  Xbyak::Tmm b_tile(int v) const { return Xbyak::Tmm(v % 3 == 2 ? 5 : 6 + v % 3); }

  void emit_configure();
  void emit_palettes();
  void emit_load_args();
  void emit_fetch_c();
  void emit_step(const Xbyak::Reg64& a0, const Xbyak::Reg64& a1, const Xbyak::Reg64& a_stride);
  void emit_prefetch();
  void emit_k_tail();
  void emit_for_tiles(const Xbyak::Reg64& base,
                      void (AmxMicrokernel::*move)(const Xbyak::Tmm&, const Xbyak::Address&));
  void emit_load(const Xbyak::Tmm& t, const Xbyak::Address& from) { tileloadd(t, from); }
  void emit_save(const Xbyak::Tmm& t, const Xbyak::Address& to) { tilestored(to, t); }
  bool streams() const { return shape().prefetch == kAhead * shape().nr; }

  Step step_;
  /// ahead_: where lines are fetched, or with streams how far from where the panels are read.
  Xbyak::Reg64 a_, a_high_, s_, line_, k_, ahead_, tiles_, row_;
  std::vector<Xbyak::Reg64> b_;
  Xbyak::Label palettes_;
};

}  // namespace quern::jit
