#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quern/bf16_gemm.h"
#include "quern/fp4_gemm.h"
#include "quern/fp8_gemm.h"
#include "quern/int4_gemm.h"
#include "quern/int8_gemm.h"
#include "quern/problem.h"
#include "reference/exact.h"
#include "tests/ops/case_values.h"
#include "tests/ops/fp4_operands.h"
#include "tests/ops/int4_operands.h"
#include "tests/support/test_matrix.h"

/// One GEMM test case and what is done with it, for every GEMM op: most properties (tails, bounds,
/// invariance, containment) are the same sentence about each of them.
namespace quern::test {

/// An op with its activation mode: "bf16", "w8a8_bf16", "w8a8_f32", "w8a8_given", "w8a16", "w4a16",
/// "w4a8", "fp8", "nvfp4", "mxfp4".
struct GemmKind {
  const char* name;
  const char* op;
  Int8Activations activations;
  DType a;
  Fp4Format fp4 = Fp4Format::kNvfp4;  ///< of fp4_gemm
};
inline constexpr GemmKind kGemmKinds[] = {
    {"bf16", "bf16_gemm", Int8Activations::kDynamicS8, DType::kBF16},
    {"w8a8_bf16", "int8_gemm", Int8Activations::kDynamicS8, DType::kBF16},
    {"w8a8_f32", "int8_gemm", Int8Activations::kDynamicS8, DType::kF32},
    {"w8a8_given", "int8_gemm", Int8Activations::kS8, DType::kS8},
    {"w8a16", "int8_gemm", Int8Activations::kBF16, DType::kBF16},
};
/// Apart from the others, because their operands have a form of their own.
inline constexpr GemmKind kInt4Kinds[] = {
    {"w4a16", "int4_gemm", Int8Activations::kBF16, DType::kBF16},
    {"w4a8", "int4_gemm", Int8Activations::kDynamicS8, DType::kBF16},
};
inline constexpr GemmKind kFp8Kind = {"fp8", "fp8_gemm", Int8Activations::kDynamicS8, DType::kBF16};
inline constexpr GemmKind kFp4Kinds[] = {
    {"nvfp4", "fp4_gemm", Int8Activations::kDynamicS8, DType::kBF16, Fp4Format::kNvfp4},
    {"mxfp4", "fp4_gemm", Int8Activations::kDynamicS8, DType::kBF16, Fp4Format::kMxfp4},
};
inline std::vector<GemmKind> all_gemm_kinds() {
  std::vector<GemmKind> kinds(std::begin(kGemmKinds), std::end(kGemmKinds));
  kinds.insert(kinds.end(), std::begin(kInt4Kinds), std::end(kInt4Kinds));
  kinds.push_back(kFp8Kind);
  kinds.insert(kinds.end(), std::begin(kFp4Kinds), std::end(kFp4Kinds));
  return kinds;
}

struct GemmCase : CaseValues {
  Problem problem;
  DType scale = DType::kF32;  ///< type of int8 and fp8 weights' scales (int4: problem.scale)
  Int4Storage storage = Int4Storage::kGptq;
  int32_t zero_offset = 0;
  Fp4Global global_is = Fp4Global::kMultiplier;
  GroupOrder order = GroupOrder::kAny;  ///< of g_idx, with problem.act_order
  int64_t a_pad = 0;                    ///< row_stride - cols of each matrix
  int64_t w_pad = 0;
  int64_t c_pad = 0;
  int64_t residual_pad = 0;
  bool residual_is_c = false;
  Invariance invariance = Invariance::kStrict;

  bool is_int8() const { return problem.op == "int8_gemm"; }
  bool is_int4() const { return problem.op == "int4_gemm"; }
  bool is_fp8() const { return problem.op == "fp8_gemm"; }
  /// Weights have scales by groups of K.
  bool grouped() const { return is_int4() || is_fp8(); }
  bool is_fp4() const { return problem.op == "fp4_gemm"; }
  /// Weights are in GemmData::w, a code or number an element.
  bool has_plain_weights() const { return !is_int4() && !is_fp4(); }
  Int4Shape int4_shape() const;
  Fp4GemmDesc fp4_desc() const;
  Fp8GemmDesc fp8_desc() const;
  bool gate_up() const { return problem.epilogue.activation == Activation::kSiluMul; }
  int parts() const { return gate_up() ? 2 : 1; }
  /// Sums are integers: every output without SiLU is bitwise what the reference gives.
  bool integer_sums() const {
    return (is_int8() || is_int4()) && problem.activations != Int8Activations::kBF16;
  }
};

GemmCase make_case(const GemmKind& kind, int64_t m, int64_t n, int64_t k);
/// `name` is "m:17/n:16/k:33".
GemmCase make_case(const GemmKind& kind, const std::string& shape);
/// Shape (mean about 2^15 multiplications), types, epilogue, strides and fill from the seed.
GemmCase random_case(const std::string& op, uint64_t seed);
/// Varies everything but the shape with `variant`: so that a loop over shapes meets every epilogue,
/// type, stride and fill without multiplying their number.
void vary(GemmCase& c, uint64_t variant);
std::string to_string(const GemmCase& c);

/// The operands of a case, filled.
struct GemmData {
  explicit GemmData(const GemmCase& c);

  /// w_scale is a vector, or a row for each block of columns.
  TestMatrix a, a_scale, w[2], w_scale[2], bias, residual, c;
  /// In place of w and w_scale where the op is int4_gemm.
  Int4Operand int4[2];
  TestMatrix g_idx;
  Fp4Operand fp4[2];  ///< where it is fp4_gemm

  Int4Weights int4_weights(int part) const { return int4[part].weights(g_idx); }
  Fp8Weights fp8_weights(int part) const { return {w[part].view(), w_scale[part].view()}; }
  /// What the op is given as residual: C itself where the case says so.
  MatrixView residual_view(const GemmCase& c);
  /// Every operand that the op only reads becomes read-only memory.
  void protect_inputs();
  ::testing::AssertionResult surroundings_intact() const;
};

/// A plan with its packed weights, whichever op.
class GemmOp {
 public:
  static Result<GemmOp> create(const Context& ctx, const GemmCase& c);
  Status pack(const GemmData& data);
  /// pack() or pack_gate_up(), whatever the plan is for.
  Status pack_as(const GemmData& data, bool gate_up);
  /// Weights (and with int8 their scales, with fp8 the one of all) that are not a GemmData's; only
  /// for plain weights.
  Status pack_view(const MatrixView& w, const VectorView& scale);
  Status pack_fp4(const Fp4Weights& w);
  Status pack_fp8(const Fp8Weights& w);
  Status pack_int4(const Int4Weights& w, const PackProgress& progress = {});
  const PackedWeights& packed() const { return packed_; }
  void use(const PackedWeights& packed) { packed_ = packed; }
  size_t scratch_bytes(int64_t max_m) const;
  std::string explain() const;

  struct Args {
    MatrixView a;
    VectorView a_scale;
    MutableMatrixView c;
    VectorView bias;
    MatrixView residual;
  };
  Status run(const Args& args, Span<std::byte> scratch) const;
  /// With scratch of its own, filled with `poison`.
  Status run(const Args& args, unsigned char poison = 0xA5) const;

 private:
  Status keep(Result<PackedWeights> packed);

  std::optional<Int8Gemm> int8_;
  std::optional<Bf16Gemm> bf16_;
  std::optional<Int4Gemm> int4_;
  std::optional<Fp8Gemm> fp8_;
  std::optional<Fp4Gemm> fp4_;
  bool gate_up_ = false;
  PackedWeights packed_;
};

/// All of `data`'s operands.
GemmOp::Args args_of(const GemmCase& c, GemmData& data);
/// Rows [first, first + rows) of them.
GemmOp::Args row_block(const GemmOp::Args& all, int64_t first, int64_t rows);

/// The reference's answer; call before the op runs where the residual is C. With Fill::kExact and
/// no SiLU every bound is zero.
reference::Exact exact_answer(const GemmCase& c, GemmData& data);

/// The whole round: fill, create, pack, protect, run, compare, look at everything around.
::testing::AssertionResult check_case(const Context& ctx, const GemmCase& c);
/// The same with values that the test has put into `data`.
::testing::AssertionResult check_case(const Context& ctx, const GemmCase& c, GemmData& data);

/// The output of the case as bits, for comparisons between two ways of computing it. Fails the
/// current test and returns nothing where the op does.
std::vector<uint32_t> output_bits(const GemmOp& op, const GemmCase& c, GemmData& data,
                                  unsigned char poison = 0xA5);
/// The same of a plan that is made for it.
std::vector<uint32_t> bits_in(const Context& ctx, const GemmCase& c);

}  // namespace quern::test
