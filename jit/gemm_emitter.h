#pragma once

#include <string>
#include <vector>

#include "jit/code_emitter.h"
#include "jit/gemm_args.h"
#include "jit/gemm_config.h"

namespace quern::jit {

/// What GEMM micro-kernels of every family share, so that what the numeric contract fixes is one
/// piece of code: the way from an integer accumulator to f32, groups of K with scales of their own,
/// and what follows once an accumulator is f32 (bias, activation, residual, rounding, masked
/// store), a row of C at a time:
///
///   emit_begin_rows(); for each row { ... to f32; emit_finish_row(row); emit_next_row(); }
///   ...return; emit_constants()
class GemmEmitter : public CodeEmitter {
 protected:
  GemmEmitter(std::string name, const GemmConfig& shape);

  /// Column masks and the pointers to the first row of C and of the residual: registers that stay
  /// taken.
  void emit_begin_rows();
  /// The bias in registers that stay taken, for loops over rows: without this each row loads it.
  void emit_keep_bias();
  /// `row` holds the nr vectors of one row as f32, scales applied; they are destroyed.
  void emit_finish_row(const Vectors& row);
  void emit_next_row();
  /// Data: behind the return.
  virtual void emit_constants();

  // Integer accumulators: sums of q (w + 128), the operands in memory at the given places.

  /// acc = f32(acc - 128 row_sum) of one row.
  void emit_correct_row(const Vectors& row, const Xbyak::RegExp& row_sum);
  /// low:high = sign-extended acc plus, unless it is the first call, the s64 parts at `partial`.
  void emit_widen(const Xbyak::Zmm& acc, const Xbyak::Zmm& low, const Xbyak::Zmm& high,
                  const Xbyak::RegExp& partial);
  /// Widens one vector and stores it back at `partial`.
  void emit_store_wide(const Xbyak::Zmm& acc, const Xbyak::RegExp& partial);
  /// As emit_correct_row for one vector whose sum began at `partial`.
  void emit_correct_wide(const Xbyak::Zmm& acc, const Xbyak::RegExp& row_sum,
                         const Xbyak::RegExp& partial);
  /// row = row * (s_row * s_col), the nr vectors of s_col in memory or in registers.
  void emit_scale_row(const Vectors& row, const Xbyak::RegExp& row_scale,
                      const Xbyak::Reg64& col_scale);
  void emit_scale_row(const Vectors& row, const Xbyak::RegExp& row_scale, const Vectors& col_scale);

  // Groups of K with scales of their own: what one group's accumulator adds to the running sum.

  /// to = f32 scales of 16 columns.
  void emit_load_scale(const Xbyak::Zmm& to, const Xbyak::Address& from, DType type);
  /// to = zero points of 16 columns as emit_fold() wants them; nothing for those that need none.
  void emit_load_zero(const Xbyak::Zmm& to, const Xbyak::Address& from, const GroupConfig& groups);
  /// sums = fma(acc minus what the zero points take away, scale, sums); acc is destroyed.
  /// `group_sum`: GemmArgs::group_sum of the row and group.
  void emit_fold(const Xbyak::Zmm& acc, const Xbyak::Zmm& scale, const Xbyak::Zmm& zero,
                 const Xbyak::RegExp& group_sum, const Xbyak::RegExp& sums,
                 const GroupConfig& groups);

  /// nr registers.
  Vectors take_vectors(const char* name);
  void give_back(const Vectors& vectors);

  /// The field of GemmArgs at `offset`, as a 64-bit operand.
  Xbyak::Address arg(size_t offset) { return qword[args() + offset]; }
  const GemmConfig& shape() const { return shape_; }
  bool gate_up() const { return shape_.epilogue.activation == Activation::kSiluMul; }
  /// Vectors of a row of C.
  int outputs() const { return gate_up() ? shape_.nr / 2 : shape_.nr; }

 private:
  void emit_column_masks(const Xbyak::Reg64& n);
  void emit_bias(const Xbyak::Zmm& t, int v);
  void emit_load_bias(const Xbyak::Zmm& to, int v);
  void emit_silu_mul(const Vectors& row);
  void emit_residual(const Xbyak::Zmm& t, int j);
  void emit_store(const Xbyak::Zmm& t, int j);
  void emit_store_pair(const Xbyak::Zmm& low, const Xbyak::Zmm& high, int j);
  /// Whether output vectors j and j + 1 are stored together.
  bool stores_pair(int j) const {
    return shape_.bf16 && shape_.epilogue.c == DType::kBF16 && j % 2 == 0 && j + 1 < outputs();
  }
  void emit_to_bf16(const Xbyak::Zmm& t);
  Xbyak::Address constant(int i) { return ptr_b[rip + constants_ + i * 4]; }
  const Xbyak::Opmask& columns(int j) const { return columns_[static_cast<size_t>(j)]; }

  GemmConfig shape_;
  std::vector<Xbyak::Opmask> columns_;       ///< which of 16 columns exist, for each output vector
  std::vector<Xbyak::Opmask> column_pairs_;  ///< and of 32, for those that are stored together
  Vectors bias_;                             ///< kept, or none
  Xbyak::Reg64 c_, residual_;
  Xbyak::Label constants_;
};

}  // namespace quern::jit
