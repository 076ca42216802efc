// Integer sums on every level: long ones at numbers of rows that the level's own family multiplies,
// and the same bits whatever the level (numeric contract, ops/README.md).
#include "tests/ops/gemm_fixture.h"

namespace quern::test {
namespace {

std::vector<GemmKind> integer_kinds() {
  std::vector<GemmKind> kinds;
  for (const GemmKind& kind : all_gemm_kinds()) {
    if (make_case(kind, 1, 1, 1).integer_sums()) kinds.push_back(kind);
  }
  return kinds;
}

/// Large values of A and of weights in s8, their signs by row of A and by row of W: every sum of k
/// products is near k 114^2, one half of them above zero, one below.
void fill_one_sided(const GemmCase& c, GemmData& data) {
  Rng rng(c.seed);
  const auto fill = [&rng](TestMatrix& m) {
    // s8 as they are; floats are quantized to about the same numbers.
    const double scale = m.dtype() == DType::kS8 ? 1 : 1.0 / 128;
    for (int64_t i = 0; i < m.rows(); ++i) {
      for (int64_t j = 0; j < m.cols(); ++j) {
        const auto magnitude = static_cast<double>(rng.in(101, 127));
        m.set(i, j, scale * (i % 2 == 0 ? magnitude : -magnitude));
      }
    }
  };
  fill(data.a);
  // Codes of int4 stay as they are: their sums fit 32 bits at every depth that it takes.
  for (int part = 0; part < c.parts() && !c.grouped() && !c.is_fp4(); ++part) fill(data.w[part]);
}

GemmCase long_case(const GemmKind& kind, const char* shape, uint64_t variant) {
  GemmCase c = make_case(kind, shape);
  vary(c, variant);
  c.problem.epilogue.activation = Activation::kNone;
  c.fill = Fill::kRandom;
  return c;
}

// From K = 165,136 on 32 bits do not hold such sums; all of these are cut, in two to four parts.
constexpr const char* kLongShapes[] = {"m:5/n:70/k:170000", "m:16/n:17/k:196609",
                                       "m:17/n:5/k:131073", "m:33/n:20/k:200001"};

using Int8LongSumsTest = GemmTest;

TEST_P(Int8LongSumsTest, AreTheReferences) {
  uint64_t variant = 0;
  for (const char* shape : kLongShapes) {
    GemmCase c = long_case(kind(), shape, ++variant);
    GemmData data(c);
    fill_one_sided(c, data);
    EXPECT_TRUE(check_case(ctx(), c, data));
  }
  // Shorter ones, in one part and in several: whole blocks of rows and one that is a tile short.
  for (const char* shape : {"m:33/n:20/k:140000", "m:70/n:40/k:1300", "m:70/n:40/k:5001"}) {
    EXPECT_TRUE(check_case(ctx(), long_case(kind(), shape, ++variant)));
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Int8LongSumsTest,
                         ::testing::Combine(::testing::ValuesIn(isas_to_test()),
                                            ::testing::ValuesIn(integer_kinds())),
                         gemm_test_name);

/// At a level above avx512: its bits are those of avx512.
class Int8LevelsTest : public GemmTest {
 protected:
  static std::vector<TestIsa> levels() {
    std::vector<TestIsa> above = isas_to_test();
    above.erase(above.begin());
    return above;
  }
  void expect_same_bits(const GemmCase& c, GemmData& data) {
    std::vector<uint32_t> bits[2];
    const Context* const contexts[] = {&shared_context(isas_to_test().front()), &ctx()};
    for (size_t i = 0; i < 2; ++i) {
      data.c.set_all(0);
      Result<GemmOp> op = GemmOp::create(*contexts[i], c);
      ASSERT_TRUE(op.ok()) << op.status().message();
      ASSERT_TRUE(op->pack(data).ok());
      bits[i] = output_bits(*op, c, data);
    }
    EXPECT_EQ(bits[1], bits[0]) << to_string(c);
  }

 public:
  static auto params() {
    return ::testing::Combine(::testing::ValuesIn(levels()), ::testing::ValuesIn(integer_kinds()));
  }
};

TEST_P(Int8LevelsTest, LongSumsHaveTheBitsOfAvx512) {
  uint64_t variant = 50;
  for (const char* shape : kLongShapes) {
    GemmCase c = long_case(kind(), shape, ++variant);
    c.residual_is_c = false;  // C is written twice
    GemmData data(c);
    fill_one_sided(c, data);
    expect_same_bits(c, data);
  }
}

// Every shape, type, stride, fill and epilogue that random cases have, SiLU too: it is computed by
// the same instructions on the same numbers.
TEST_P(Int8LevelsTest, RandomCasesHaveTheBitsOfAvx512) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    GemmCase c = random_case(kind().op, seed);
    c.problem.activations = kind().activations;
    c.problem.a = kind().a;
    c.problem.m += 5;  // up to four rows the levels share their kernels
    c.residual_is_c = false;
    GemmData data(c);
    expect_same_bits(c, data);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Int8LevelsTest, Int8LevelsTest::params(), gemm_test_name);

}  // namespace
}  // namespace quern::test
