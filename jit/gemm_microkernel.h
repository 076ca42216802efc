#pragma once

#include <string>
#include <vector>

#include "jit/gemm_args.h"
#include "jit/gemm_config.h"
#include "jit/gemm_emitter.h"

namespace quern::jit {

/// What every AVX-512 GEMM micro-kernel shares: addressing of rows and panels, the K loop, blocks
/// of rows one below the other, and partial sums between cuts of K. A derived generator says how
/// one step of depth is multiplied and how an accumulator becomes f32.
///
///        panels of 16 packed columns: one zmm a step each
///        B0    B1    B2    B3      (nr loads a step, from nr sequential streams)
///   A0  acc00 acc01 acc02 acc03
///   A1  acc10 acc11 acc12 acc13    a step: one broadcast of A a row,
///   ..   ..    ..    ..    ..      then nr dot products with it
///   A5  acc50 acc51 acc52 acc53
///
/// mr * nr dots for mr + nr loads: the peak of the dot products is near, where an embedded {1to16}
/// operand on each of them reaches 82 %.
///
/// loop nest: blocks of rows { k in turns of steps { load B; for m { broadcast A; for v { dot } }
/// }; the epilogue }
class GemmMicrokernel : public GemmEmitter {
 protected:
  /// How the K loop moves: one step consumes `k_step` elements of depth, 64 bytes of each panel.
  struct Step {
    int k_step_log2 = 0;
    int a_bytes = 0;        ///< of each row of A a step
    bool round_up = false;  ///< A is padded: a partial last step is run as a whole one
    int turn = 4;           ///< steps that are unrolled: a multiple of kUnroll
  };

  GemmMicrokernel(std::string name, const GemmConfig& shape, const Step& step);

  void emit() override;

  /// Once, before the K loop: constants that live in registers.
  virtual void emit_setup() {}
  /// Once, after it.
  virtual void emit_teardown() {}
  /// One step at byte offsets `a_offset` of each row and `b_offset` of each panel.
  virtual void emit_step(int a_offset, int b_offset) = 0;
  /// The last, partial step where !round_up: k() modulo k_step elements remain.
  virtual void emit_k_tail() {}
  /// The steps of this call. Overridden where more than steps is in it.
  virtual void emit_k_loop();
  /// After the K loop of the last call: acc(m, v) of every element becomes f32, scales applied.
  virtual void emit_to_f32() = 0;
  /// acc(m, v) *= col_scale, where that is all that turns an accumulator into its value.
  void emit_scale_columns();
  /// Loads, or zeroes on the first call; stores where it is not the last. Overridden where partial
  /// sums are wider than the accumulator.
  virtual void emit_load_partial();
  virtual void emit_store_partial();

  Xbyak::Zmm acc(int m, int v) const { return acc_[static_cast<size_t>(m * shape().nr + v)]; }
  /// The accumulators of one row.
  Vectors acc_row(int m) const {
    return {acc_.begin() + m * shape().nr, acc_.begin() + (m + 1) * shape().nr};
  }
  Xbyak::RegExp row(int m) const;
  Xbyak::RegExp panel(int v) const { return panel_of(b_, v); }
  const Xbyak::Reg64& k() const { return k_; }
  /// Registers for the broadcasts of A, to be used in turn. Two where they are to be had: with one,
  /// the 6 x 4 block reaches 92 % of Granite Rapids' peak from L1, with two 96 % (bench/NOTES.md).
  Vectors take_broadcasts();
  // bf16 dot products take denormals for zero and flush them; FMAs in their place do so under DAZ
  // and FTZ. GemmArgs::control[0] keeps the caller's MXCSR, control[1] is that of the FMAs.

  /// Once, before either is loaded.
  void emit_save_mxcsr();
  void emit_load_mxcsr(bool flushing);

  int partial_offset(int m, int v) const { return (m * shape().nr + v) * 64; }

  static constexpr int kUnroll = 4;  ///< steps that GemmConfig::prefetch counts lines of
  int turn() const { return step_.turn; }
  /// `count` turns, at least one; destroys it.
  void emit_unrolled(const Xbyak::Reg64& count);
  virtual void emit_advance(int steps);
  /// Where emit_unrolled() fetches from; it moves along. Only where something is fetched.
  const Xbyak::Reg64& ahead() const { return ahead_; }
  const Xbyak::Reg64& first_panel() const { return b_; }

 private:
  Xbyak::RegExp panel_of(const Xbyak::Reg64& base, int v) const;
  void emit_load_args();
  void emit_next_block(const Xbyak::Label& block);
  bool streams() const { return shape().prefetch == kUnroll * shape().nr; }
  void emit_prefetch(int step);
  void emit_fetch_rows(size_t base, size_t stride, bool for_write);

  Step step_;
  Vectors acc_;
  Xbyak::Reg64 a_, a_high_, s_, s3_, s5_, s7_, b_, p_, p3_, k_, ahead_;
};

}  // namespace quern::jit
