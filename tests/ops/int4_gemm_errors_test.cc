// What a caller can get wrong about int4 weights: each operand of each storage, and plans whose
// weights were packed for another.
#include <cstdint>
#include <functional>
#include <limits>

#include "tests/ops/gemm_fixture.h"

namespace quern::test {
namespace {

class Int4ErrorsTest : public GemmTest {
 protected:
  /// 17 columns: three words; 70 of K in groups of 32: three, the last one short.
  GemmCase full_case(Int4Storage storage, bool act_order = true) const {
    GemmCase c = make_case(kind(), 3, 17, 70);
    c.storage = storage;
    c.problem.group = 32;
    c.problem.zeros = Int4Zeros::kInteger;
    c.problem.act_order = act_order;
    return c;
  }
  static void expect_status(const Status& s, StatusCode code, const char* text,
                            const std::string& what) {
    EXPECT_EQ(s.code(), code) << what << ": " << s.message();
    EXPECT_NE(s.message().find(text), std::string::npos) << what << ": " << s.message();
  }
};

struct PackError {
  const char* name;
  std::function<void(Int4Weights&)> breakage;
  const char* in_message;
};

const std::vector<PackError>& pack_errors() {
  using W = Int4Weights;
  static const std::vector<PackError> rows = {
      {"storage", [](W& w) { w.storage = static_cast<Int4Storage>(3); }, "w.storage"},
      {"codes null", [](W& w) { w.codes.data = nullptr; }, "w.codes.data"},
      {"codes type", [](W& w) { w.codes.dtype = DType::kU8; }, "w.codes.dtype (u8) must be s32"},
      {"codes rows", [](W& w) { w.codes.rows -= 1; }, "w.codes.rows"},
      {"codes columns", [](W& w) { w.codes.cols += 1; }, "w.codes.cols"},
      {"codes transposed", [](W& w) { std::swap(w.codes.rows, w.codes.cols); }, "w.codes."},
      {"codes stride", [](W& w) { w.codes.row_stride = w.codes.cols - 1; }, "w.codes.row_stride"},
      {"scale null", [](W& w) { w.scale.data = nullptr; }, "w.scale.data"},
      {"scale empty", [](W& w) { w.scale.rows = 0; }, "w.scale.rows (0)"},  // I10
      {"scale type", [](W& w) { w.scale.dtype = DType::kBF16; },
       "w.scale.dtype (bf16) must be f16"},
      {"scale transposed", [](W& w) { std::swap(w.scale.rows, w.scale.cols); }, "w.scale."},  // I09
      {"scale stride", [](W& w) { w.scale.row_stride = 1; }, "w.scale.row_stride (1)"},
      {"zero null", [](W& w) { w.zero.data = nullptr; }, "w.zero.data"},
      {"zero absent", [](W& w) { w.zero = MatrixView(); }, "w.zero"},
      {"zero type", [](W& w) { w.zero.dtype = DType::kF32; }, "w.zero.dtype (f32) must be s32"},
      {"zero rows", [](W& w) { w.zero.rows += 1; }, "w.zero.rows"},
      {"zero columns", [](W& w) { w.zero.cols -= 1; }, "w.zero.cols"},
      {"zero offset", [](W& w) { w.zero_offset = 2; }, "w.zero_offset (2)"},
      {"zero offset negative", [](W& w) { w.zero_offset = -1; }, "w.zero_offset (-1)"},
  };
  return rows;
}

const std::vector<PackError>& order_errors() {
  using W = Int4Weights;
  static const std::vector<PackError> rows = {
      {"g_idx absent", [](W& w) { w.g_idx = VectorView(); }, "w.g_idx"},
      {"g_idx null", [](W& w) { w.g_idx.data = nullptr; }, "w.g_idx.data"},
      {"g_idx type", [](W& w) { w.g_idx.dtype = DType::kF32; }, "w.g_idx.dtype (f32) must be s32"},
      {"g_idx size", [](W& w) { w.g_idx.size = 69; }, "w.g_idx.size (69)"},
  };
  return rows;
}

TEST_P(Int4ErrorsTest, OperandsOfPack) {
  for (const Int4Storage storage : kInt4Storages) {
    for (const bool act_order : {false, true}) {
      const GemmCase c = full_case(storage, act_order);
      GemmData data(c);
      Result<GemmOp> op = GemmOp::create(ctx(), c);
      ASSERT_TRUE(op.ok()) << op.status().message();
      ASSERT_TRUE(op->pack_int4(data.int4_weights(0)).ok());
      for (const PackError& e : act_order ? order_errors() : pack_errors()) {
        Int4Weights w = data.int4_weights(0);
        e.breakage(w);
        expect_status(op->pack_int4(w), StatusCode::kInvalidArgument, e.in_message, e.name);
      }
    }
  }
}

TEST_P(Int4ErrorsTest, GroupIndicesOutOfRange) {  // bug_log L12
  const GemmCase c = full_case(Int4Storage::kGptq);
  GemmData data(c);
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok());
  for (const int64_t wrong : {int64_t{-1}, int64_t{3}, int64_t{INT32_MAX}, int64_t{INT32_MIN}}) {
    for (const int64_t at : {0, 37, 69}) {
      const double before = data.g_idx.get(0, at);
      data.g_idx.set(0, at, static_cast<double>(wrong));
      expect_status(op->pack_int4(data.int4_weights(0)), StatusCode::kInvalidArgument, "w.g_idx",
                    std::to_string(wrong));
      data.g_idx.set(0, at, before);
    }
  }
  EXPECT_TRUE(op->pack_int4(data.int4_weights(0)).ok());
}

TEST_P(Int4ErrorsTest, OperandsThatNobodyAskedFor) {
  GemmCase c = full_case(Int4Storage::kGptq);
  GemmData data(c);
  const Int4Weights all = data.int4_weights(0);
  c.problem.act_order = false;
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok());
  expect_status(op->pack_int4(all), StatusCode::kInvalidArgument, "w.g_idx", "g_idx");
  c.problem.act_order = true;
  c.problem.zeros = Int4Zeros::kSymmetric;
  op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok());
  expect_status(op->pack_int4(all), StatusCode::kInvalidArgument, "w.zero", "zeros");
}

TEST_P(Int4ErrorsTest, GateAndUpWithOtherOrders) {
  GemmCase c = full_case(Int4Storage::kGptq);
  c.problem.epilogue.activation = Activation::kSiluMul;
  GemmData data(c);
  const auto made = Int4Gemm::create(ctx(), c.int4_shape().desc);
  ASSERT_TRUE(made.ok()) << made.status().message();
  const Int4Weights gate = data.int4_weights(0);
  Int4Weights up = data.int4_weights(1);
  ASSERT_TRUE(made->pack_gate_up(gate, up).ok());
  TestMatrix other(DType::kS32, 1, 70);
  for (int64_t k = 0; k < 70; ++k) other.set(0, k, data.g_idx.get(0, k));
  up.g_idx = other.vector();
  EXPECT_TRUE(made->pack_gate_up(gate, up).ok()) << "another copy of the same order";
  other.set(0, 69, other.get(0, 69) == 0 ? 1 : 0);
  expect_status(made->pack_gate_up(gate, up).status(), StatusCode::kInvalidArgument, "g_idx",
                "orders differ");
  up = data.int4_weights(1);
  up.codes.cols = 16;
  expect_status(made->pack_gate_up(gate, up).status(), StatusCode::kInvalidArgument,
                "up.codes.cols", "the other part");
}

TEST_P(Int4ErrorsTest, WeightsPackedForAnotherPlan) {
  const GemmCase c = full_case(Int4Storage::kGptq);
  GemmData data(c);
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok());
  ASSERT_TRUE(op->pack(data).ok());
  struct Row {
    const char* text;
    std::function<void(Problem&)> change;
  };
  const Row rows[] = {
      {"weights.group", [](Problem& p) { p.group = 16; }},
      {"weights.zeros", [](Problem& p) { p.zeros = Int4Zeros::kSymmetric; }},
      {"weights.zeros", [](Problem& p) { p.zeros = Int4Zeros::kF32; }},
      {"weights.scale", [](Problem& p) { p.scale = DType::kBF16; }},
      {"weights.act_order", [](Problem& p) { p.act_order = false; }},
  };
  for (const Row& row : rows) {
    GemmCase other = c;
    row.change(other.problem);
    GemmData other_data(other);
    Result<GemmOp> packer = GemmOp::create(ctx(), other);
    ASSERT_TRUE(packer.ok());
    ASSERT_TRUE(packer->pack(other_data).ok());
    GemmOp wrong = *op;
    wrong.use(packer->packed());
    expect_status(wrong.run(args_of(c, data)), StatusCode::kInvalidArgument, row.text,
                  to_string(other));
  }
}

TEST_P(Int4ErrorsTest, Descs) {
  const auto refused = [&](auto breakage, StatusCode code, const char* text) {
    Int4GemmDesc desc = full_case(Int4Storage::kGptq).int4_shape().desc;
    breakage(desc);
    const auto made = Int4Gemm::create(ctx(), desc);
    ASSERT_FALSE(made.ok()) << text;
    expect_status(made.status(), code, text, text);
  };
  using D = Int4GemmDesc;
  constexpr StatusCode kBad = StatusCode::kInvalidArgument;
  refused([](D& d) { d.group = 0; }, kBad, "desc.group (0)");
  refused([](D& d) { d.group = -2; }, kBad, "desc.group (-2)");
  refused([](D& d) { d.scale = DType::kS8; }, kBad, "desc.scale (s8)");
  refused([](D& d) { d.zeros = static_cast<Int4Zeros>(3); }, kBad, "desc.zeros (3)");
  refused([](D& d) { d.activations = static_cast<Int4Activations>(2); }, kBad,
          "desc.activations (2)");
  refused([](D& d) { d.k = (int64_t{1} << 20) + 1; }, StatusCode::kTooLarge, "k (1048577)");
  Int4GemmDesc longest;
  longest.n = 1;
  longest.k = int64_t{1} << 20;
  longest.group = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(Int4Gemm::create(ctx(), longest).ok());
}

// bug_log B16: sizes whose bytes no memory has. pack() sees them first.
TEST_P(Int4ErrorsTest, PackedSizesThatCannotBe) {
  GemmCase c = make_case(kind(), 0, int64_t{1} << 47, int64_t{1} << 20);
  c.problem.group = 32;
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  if (!op.ok()) {
    EXPECT_EQ(op.status().code(), StatusCode::kTooLarge) << op.status().message();
    return;
  }
  // Views that are longer than their memory: a size check that fails has read nothing yet.
  const uint32_t word = 0;
  Int4Weights w;
  w.codes = {&word, DType::kS32, int64_t{1} << 17, c.problem.n, c.problem.n};
  w.scale = {&word, DType::kF16, int64_t{1} << 15, c.problem.n, c.problem.n};
  const Status s = op->pack_int4(w);
  EXPECT_TRUE(s.code() == StatusCode::kTooLarge || s.code() == StatusCode::kOutOfMemory)
      << s.message();
}

INSTANTIATE_TEST_SUITE_P(Ops, Int4ErrorsTest,
                         ::testing::Combine(::testing::ValuesIn(isas_to_test()),
                                            ::testing::ValuesIn(kInt4Kinds)),
                         gemm_test_name);

}  // namespace
}  // namespace quern::test
