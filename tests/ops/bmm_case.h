#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "quern/bmm.h"
#include "quern/problem.h"
#include "reference/exact.h"
#include "tests/ops/case_values.h"
#include "tests/support/isa_list.h"
#include "tests/support/test_batch.h"

/// One bmm test case and what is done with it: the counterpart of gemm_case.h.
namespace quern::test {

inline constexpr BmmOperand kBmmOperands[] = {BmmOperand::kBF16, BmmOperand::kS8,
                                              BmmOperand::kPlainNK, BmmOperand::kPlainKN,
                                              BmmOperand::kE4M3};
const char* name_of(BmmOperand b);

struct BmmCase : CaseValues {
  Problem problem;
  DType scale = DType::kF32;
  bool scale_of_matrix = false;    ///< one for each matrix instead of one for each column
  BmmOrder order = BmmOrder::kNK;  ///< what pack() gets; a plain B says it itself
  BatchForm a_form = BatchForm::kHeads;
  BatchForm b_form = BatchForm::kMatrices;  ///< kShared and packed: weights of one matrix
  BatchForm c_form = BatchForm::kHeads;     ///< not kShared
  int64_t a_pad = 0;
  int64_t b_pad = 0;
  int64_t c_pad = 0;
  int64_t gap = 0;  ///< rows between the matrices of each operand

  bool plain() const {
    return problem.b == BmmOperand::kPlainNK || problem.b == BmmOperand::kPlainKN;
  }
  /// Of packed B before it is packed.
  DType stored_type() const {
    return problem.b == BmmOperand::kS8     ? DType::kS8
           : problem.b == BmmOperand::kE4M3 ? DType::kE4M3
                                            : DType::kBF16;
  }
  /// B has scales.
  bool codes() const { return stored_type() != DType::kBF16; }
  BmmOrder stored() const;
  BmmDesc desc() const;
};

BmmCase make_bmm(BmmOperand b, int64_t batch, int64_t m, int64_t n, int64_t k);
/// Varies everything but operand and shape.
void vary(BmmCase& c, uint64_t variant);
/// Batch 0, 1, 2, 3, 17 or another, everything else from the seed; about 2^15 multiplications.
BmmCase random_bmm(uint64_t seed);
std::string to_string(const BmmCase& c);

struct BmmData {
  explicit BmmData(const BmmCase& c);

  TestBatch a, b, c;
  TestMatrix scale;

  /// For pack(): of one matrix where all products share it.
  BmmWeights weights(const BmmCase& c) const;
  void protect_inputs();
};

/// A plan with what it needs to run.
class BmmOp {
 public:
  static Result<BmmOp> create(const Context& ctx, const BmmCase& c);
  Status pack(const BmmCase& c, const BmmData& data);
  const Bmm& op() const { return op_; }
  const PackedWeights& packed() const { return packed_; }
  void use(const PackedWeights& packed) { packed_ = packed; }
  BmmArgs args(const BmmCase& c, BmmData& data) const;
  /// With scratch of its own, filled with `poison`.
  Status run(const BmmArgs& args, unsigned char poison = 0xA5) const;

 private:
  Bmm op_;
  PackedWeights packed_;
};

/// The reference's answer for one matrix; every bound is zero with Fill::kExact.
reference::Exact exact_answer(const BmmCase& c, BmmData& data, int64_t matrix);

/// The whole round: fill, create, pack, protect, run, compare, look at everything around.
::testing::AssertionResult check_bmm(const Context& ctx, const BmmCase& c);

/// The elements, matrix by matrix, row by row.
std::vector<uint32_t> element_bits(const TestBatch& batch);

/// Output bits of a run.
std::vector<uint32_t> output_bits(const BmmOp& op, const BmmCase& c, BmmData& data,
                                  unsigned char poison = 0xA5);
std::vector<uint32_t> bits_in(const Context& ctx, const BmmCase& c);

/// One run per ISA level and form of B.
class BmmTest : public ::testing::TestWithParam<std::tuple<TestIsa, BmmOperand>> {
 protected:
  void SetUp() override {
    if (!isa().skip_reason.empty()) GTEST_SKIP() << isa().skip_reason;
  }
  const TestIsa& isa() const { return std::get<0>(GetParam()); }
  BmmOperand b() const { return std::get<1>(GetParam()); }
  const Context& ctx() const { return shared_context(isa()); }
};
inline std::string bmm_test_name(const ::testing::TestParamInfo<BmmTest::ParamType>& info) {
  return std::get<0>(info.param).name + "_" + name_of(std::get<1>(info.param));
}
inline auto every_bmm() {
  return ::testing::Combine(::testing::ValuesIn(isas_to_test()), ::testing::ValuesIn(kBmmOperands));
}

}  // namespace quern::test
