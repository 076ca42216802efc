// What a caller can get wrong, one row each: the code, and the argument's name in the message.
#include <cstdint>
#include <functional>
#include <limits>

#include "tests/ops/gemm_fixture.h"

namespace quern::test {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62;

struct ArgumentError {
  const char* name;  ///< what is wrong
  std::function<void(GemmOp::Args&)> breakage;
  StatusCode code;
  const char* in_message;
};

const std::vector<ArgumentError>& argument_errors() {
  using A = GemmOp::Args;
  const StatusCode kBad = StatusCode::kInvalidArgument;
  const StatusCode kBig = StatusCode::kTooLarge;
  static const std::vector<ArgumentError> rows = {
      {"a null", [](A& x) { x.a.data = nullptr; }, kBad, "a.data"},
      {"a type", [](A& x) { x.a.dtype = DType::kF16; }, kBad, "a.dtype (f16) must be "},
      {"a columns", [](A& x) { x.a.cols += 1; }, kBad, "a.cols"},
      {"a fewer columns", [](A& x) { x.a.cols -= 1; }, kBad, "a.cols"},
      {"a stride below columns", [](A& x) { x.a.row_stride = x.a.cols - 1; }, kBad, "a.row_stride"},
      {"a negative stride", [](A& x) { x.a.row_stride = -x.a.cols; }, kBad, "a.row_stride"},
      {"a negative rows", [](A& x) { x.a.rows = -1; }, kBad, "a.rows"},
      {"a too many rows", [](A& x) { x.a.rows = kHuge; }, kBig, "a.rows"},
      {"a stride too long", [](A& x) { x.a.row_stride = kHuge; }, kBig, "a of"},
      {"c null", [](A& x) { x.c.data = nullptr; }, kBad, "c.data"},
      {"c type", [](A& x) { x.c.dtype = DType::kF16; }, kBad, "c.dtype (f16) must be bf16"},
      {"c other type", [](A& x) { x.c.dtype = DType::kF32; }, kBad, "c.dtype (f32) must be bf16"},
      {"c rows", [](A& x) { x.c.rows += 1; }, kBad, "c.rows"},
      {"c columns", [](A& x) { x.c.cols -= 1; }, kBad, "c.cols"},
      {"c stride", [](A& x) { x.c.row_stride = x.c.cols - 1; }, kBad, "c.row_stride"},
      {"c stride too long", [](A& x) { x.c.row_stride = kHuge; }, kBig, "c of"},
      {"bias null", [](A& x) { x.bias.data = nullptr; }, kBad, "bias.data"},
      {"bias type", [](A& x) { x.bias.dtype = DType::kBF16; }, kBad, "bias.dtype"},
      {"bias size", [](A& x) { x.bias.size -= 1; }, kBad, "bias.size"},
      {"residual null", [](A& x) { x.residual.data = nullptr; }, kBad, "residual.data"},
      {"residual type", [](A& x) { x.residual.dtype = DType::kF32; }, kBad, "residual.dtype"},
      {"residual rows", [](A& x) { x.residual.rows -= 1; }, kBad, "residual.rows"},
      {"residual columns", [](A& x) { x.residual.cols += 1; }, kBad, "residual.cols"},
      {"residual stride", [](A& x) { x.residual.row_stride = 0; }, kBad, "residual.row_stride"},
  };
  return rows;
}

class GemmErrorsTest : public GemmTest {
 protected:
  GemmCase full_case() const {
    GemmCase c = make_case(kind(), 3, 20, 30);
    c.problem.epilogue.bias = true;
    c.problem.epilogue.residual = true;
    return c;
  }
  bool given_scales() const { return kind().a == DType::kS8; }

  GemmOp make(const GemmCase& c, const GemmData& data) const {
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    EXPECT_TRUE(op.ok()) << op.status().message();
    GemmOp out = op.ok() ? std::move(op).value() : GemmOp();
    EXPECT_TRUE(out.pack(data).ok());
    return out;
  }
  static void expect_status(const Status& s, StatusCode code, const char* text, const char* what) {
    EXPECT_EQ(s.code(), code) << what << ": " << s.message();
    EXPECT_NE(s.message().find(text), std::string::npos) << what << ": " << s.message();
  }
};

TEST_P(GemmErrorsTest, ArgumentsOfRun) {
  const GemmCase c = full_case();
  GemmData data(c);
  const GemmOp op = make(c, data);
  ASSERT_TRUE(op.run(args_of(c, data)).ok());
  const std::vector<uint32_t> before = element_bits(data.c.view());
  std::vector<std::byte> scratch(op.scratch_bytes(3));
  for (const ArgumentError& e : argument_errors()) {
    GemmOp::Args args = args_of(c, data);
    e.breakage(args);
    expect_status(op.run(args, scratch), e.code, e.in_message, e.name);
  }
  EXPECT_EQ(element_bits(data.c.view()), before) << "a refused call wrote to c";
}

TEST_P(GemmErrorsTest, RowScales) {
  const GemmCase c = full_case();
  GemmData data(c);
  const GemmOp op = make(c, data);
  std::vector<std::byte> scratch(op.scratch_bytes(3));
  GemmOp::Args args = args_of(c, data);
  if (!c.is_int8()) GTEST_SKIP() << "only int8_gemm has a_scale";
  if (!given_scales()) {
    args.a_scale = data.a_scale.vector();
    expect_status(op.run(args, scratch), StatusCode::kInvalidArgument, "a_scale", "not asked for");
    return;
  }
  args.a_scale.size = 2;
  expect_status(op.run(args, scratch), StatusCode::kInvalidArgument, "a_scale.size", "size");
  args.a_scale.size = 3;
  args.a_scale.dtype = DType::kBF16;
  expect_status(op.run(args, scratch), StatusCode::kInvalidArgument, "a_scale.dtype", "type");
  args.a_scale = VectorView();
  args.a_scale.size = 3;
  expect_status(op.run(args, scratch), StatusCode::kInvalidArgument, "a_scale.data", "null");
}

TEST_P(GemmErrorsTest, OperandsThatNobodyAskedFor) {
  const GemmCase c = make_case(kind(), 3, 20, 30);
  GemmData data(c);
  const GemmOp op = make(c, data);
  std::vector<std::byte> scratch(op.scratch_bytes(3));
  GemmOp::Args args = args_of(c, data);
  args.bias = data.bias.vector();
  expect_status(op.run(args, scratch), StatusCode::kInvalidArgument, "bias", "bias");
  args = args_of(c, data);
  args.residual = data.residual.view();
  expect_status(op.run(args, scratch), StatusCode::kInvalidArgument, "residual", "residual");
}

TEST_P(GemmErrorsTest, Scratch) {
  const GemmCase c = full_case();
  GemmData data(c);
  const GemmOp op = make(c, data);
  const size_t needed = op.scratch_bytes(3);
  const Span<std::byte> none;
  if (needed == 0) {
    EXPECT_TRUE(op.run(args_of(c, data), none).ok())
        << "null scratch is legal where none is needed";
    return;
  }
  expect_status(op.run(args_of(c, data), none), StatusCode::kInvalidArgument, "scratch", "null");
  std::vector<std::byte> scratch(needed - 1);
  expect_status(op.run(args_of(c, data), scratch), StatusCode::kInvalidArgument, "scratch",
                "short");
  expect_status(op.run(args_of(c, data), Span<std::byte>(nullptr, needed)),
                StatusCode::kInvalidArgument, "scratch", "null with a size");
}

TEST_P(GemmErrorsTest, ScratchGrowsWithRowsAndNeverWraps) {
  auto pool = PersistentPool::create(3);
  ASSERT_TRUE(pool.ok());
  const Context threaded = context_at(isa(), pool->get());
  for (const int64_t k : {0, 1, 30, 5000, 140000}) {
    Result<GemmOp> op = GemmOp::create(threaded, make_case(kind(), 1, 20, k));
    ASSERT_TRUE(op.ok()) << op.status().message();
    size_t last = 0;
    for (const int64_t m :
         {int64_t{-5}, int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{8},
          int64_t{15}, int64_t{16}, int64_t{17}, int64_t{64}, int64_t{1000}, int64_t{1} << 20,
          int64_t{1} << 31, int64_t{1} << 40, kHuge, std::numeric_limits<int64_t>::max()}) {
      const size_t bytes = op->scratch_bytes(m);
      EXPECT_GE(bytes, last) << "m " << m << " k " << k;
      last = bytes;
    }
  }
}

TEST_P(GemmErrorsTest, Weights) {
  const GemmCase c = full_case();
  GemmData data(c);
  const GemmOp good = make(c, data);
  std::vector<std::byte> scratch(good.scratch_bytes(3));

  Result<GemmOp> unpacked = GemmOp::create(ctx(), c);
  ASSERT_TRUE(unpacked.ok());
  expect_status(unpacked->run(args_of(c, data), scratch), StatusCode::kInvalidArgument, "weights",
                "not packed");

  // Packed for another n, another k, as gate and up, by the other op.
  std::vector<GemmCase> others = {c, c, c, c};
  others[0].problem.n = 21;
  others[1].problem.k = 31;
  others[2].problem.epilogue.activation = Activation::kSiluMul;
  others[3] = make_case(kGemmKinds[c.is_int8() ? 0 : 1], 3, 20, 30);
  for (const GemmCase& other : others) {
    GemmData other_data(other);
    const GemmOp packer = make(other, other_data);
    GemmOp op = good;
    op.use(packer.packed());
    expect_status(op.run(args_of(c, data), scratch), StatusCode::kInvalidArgument, "weights",
                  to_string(other.problem).c_str());
  }
}

TEST_P(GemmErrorsTest, Pack) {
  if (!has_plain_weights())
    GTEST_SKIP() << "Int4ErrorsTest and Fp4ErrorsTest have what these get wrong";
  const GemmCase c = make_case(kind(), 1, 20, 30);
  GemmData data(c);
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok());
  const auto expect_refused = [&](const GemmCase& wrong, const char* text) {
    const GemmData wrong_data(wrong);
    expect_status(op->pack(wrong_data), StatusCode::kInvalidArgument, text,
                  to_string(wrong.problem).c_str());
  };
  GemmCase wrong = c;
  wrong.problem.n = 19;
  expect_refused(wrong, "rows (19)");
  wrong = c;
  wrong.problem.k = 31;
  expect_refused(wrong, "cols (31)");
  if (c.is_int8()) {
    wrong = c;
    wrong.scale = DType::kS32;
    expect_refused(wrong, "w.scale.dtype (s32) must be f32, bf16 or f16");
    wrong = make_case(kGemmKinds[0], 1, 20, 30);
    expect_refused(wrong, "dtype");
  }
}

TEST_P(GemmErrorsTest, PackWantsGateAndUpExactlyWithSiluMul) {
  GemmCase plain = make_case(kind(), 1, 20, 30);
  GemmCase gated = plain;
  gated.problem.epilogue.activation = Activation::kSiluMul;
  GemmData data(gated);
  for (const bool is_gated : {false, true}) {
    const GemmCase& c = is_gated ? gated : plain;
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok());
    expect_status(op->pack_as(data, !is_gated), StatusCode::kInvalidArgument, "pack_gate_up",
                  is_gated ? "pack of a silu_mul plan" : "pack_gate_up of a plain plan");
  }
}

TEST_P(GemmErrorsTest, Desc) {
  struct Row {
    const char* name;
    std::function<void(Problem&)> breakage;
    StatusCode code;
    const char* in_message;
  };
  const Row rows[] = {
      {"n negative", [](Problem& p) { p.n = -1; }, StatusCode::kInvalidArgument, "n (-1)"},
      {"k negative", [](Problem& p) { p.k = -7; }, StatusCode::kInvalidArgument, "k (-7)"},
      {"n near 2^62", [](Problem& p) { p.n = kHuge; }, StatusCode::kTooLarge, "n ("},
      {"n 2^63-1", [](Problem& p) { p.n = INT64_MAX; }, StatusCode::kTooLarge, "n ("},
      {"k near 2^62", [](Problem& p) { p.k = kHuge; }, StatusCode::kTooLarge, "k ("},
      {"k 2^63-1", [](Problem& p) { p.k = INT64_MAX; }, StatusCode::kTooLarge, "k ("},
      {"c s8", [](Problem& p) { p.c = DType::kS8; }, StatusCode::kInvalidArgument,
       "desc.c (s8) must be f32 or bf16"},
      {"c f16", [](Problem& p) { p.c = DType::kF16; }, StatusCode::kInvalidArgument,
       "desc.c (f16) must be f32 or bf16"},
  };
  for (const Row& row : rows) {
    GemmCase c = make_case(kind(), 1, 4, 4);
    row.breakage(c.problem);
    const Result<GemmOp> op = GemmOp::create(ctx(), c);
    ASSERT_FALSE(op.ok()) << row.name;
    expect_status(op.status(), row.code, row.in_message, row.name);
  }
  if (std::string(kind().op) == "int8_gemm") {
    for (const DType wrong : {DType::kF16, DType::kU8, DType::kS32}) {
      GemmCase c = make_case(kind(), 1, 4, 4);
      c.problem.a = wrong;
      const Result<GemmOp> op = GemmOp::create(ctx(), c);
      ASSERT_FALSE(op.ok());
      expect_status(op.status(), StatusCode::kInvalidArgument, "desc.a", to_string(wrong));
    }
  }
}

// bug_log B16: sizes whose bytes do not fit 64 bits, or any memory. pack() sees them first.
TEST_P(GemmErrorsTest, PackedSizesThatCannotBe) {
  if (!has_plain_weights()) GTEST_SKIP() << "Int4ErrorsTest and Fp4ErrorsTest have them";
  const int64_t sizes[][2] = {{int64_t{1} << 47, 1 << 20},
                              {int64_t{1} << 47, 1 << 16},
                              {(int64_t{1} << 48) - 1, 1 << 24},
                              {int64_t{1} << 44, 1 << 24}};
  for (const auto& [n, k] : sizes) {
    GemmCase c = make_case(kind(), 0, 1, 1);
    GemmData data(c);
    c.problem.n = n;
    c.problem.k = k;
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    if (!op.ok()) {
      EXPECT_EQ(op.status().code(), StatusCode::kTooLarge) << op.status().message();
      continue;
    }
    // The view is longer than its memory; a size check that fails has read nothing yet.
    MatrixView w = data.w[0].view();
    VectorView scale = data.w_scale[0].vector();
    w.rows = scale.size = n;
    w.cols = w.row_stride = k;
    const Status s = op->pack_view(w, scale);
    EXPECT_TRUE(s.code() == StatusCode::kTooLarge || s.code() == StatusCode::kOutOfMemory)
        << n << " x " << k << ": " << s.message();
  }
}

TEST_P(GemmErrorsTest, NullIsLegalWhereThereIsNothing) {
  for (const char* shape : {"m:0/n:5/k:7", "m:3/n:0/k:7", "m:3/n:5/k:0", "m:0/n:0/k:0"}) {
    GemmCase c = make_case(kind(), shape);
    c.problem.c = DType::kF32;
    GemmData data(c);
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok()) << op.status().message();
    ASSERT_TRUE(op->pack(data).ok()) << shape;
    GemmOp::Args args = args_of(c, data);
    if (c.problem.m * c.problem.k == 0) args.a.data = nullptr;
    if (c.problem.m * c.problem.n == 0) args.c.data = nullptr;
    if (c.problem.m == 0) args.a_scale.data = nullptr;
    const Status s = op->run(args);
    EXPECT_TRUE(s.ok()) << shape << " " << s.message();
    for (int64_t i = 0; i < c.problem.m; ++i) {
      for (int64_t j = 0; j < c.problem.n; ++j) EXPECT_EQ(data.c.get(i, j), 0.0);
    }
  }
}

// A single row has no next row: its stride may be anything that is not below the width.
TEST_P(GemmErrorsTest, TheStrideOfASingleRowDoesNotMatter) {
  GemmCase c = make_case(kind(), 1, 20, 30);
  c.problem.epilogue.residual = true;
  GemmData data(c);
  const GemmOp op = make(c, data);
  ASSERT_TRUE(op.run(args_of(c, data)).ok());
  const std::vector<uint32_t> expected = element_bits(data.c.view());
  for (const int64_t stride : {int64_t{1} << 40, kHuge, std::numeric_limits<int64_t>::max()}) {
    data.c.set_all(0);
    GemmOp::Args args = args_of(c, data);
    args.a.row_stride = stride;
    args.c.row_stride = stride;
    args.residual.row_stride = stride;
    const Status s = op.run(args);
    if (s.ok()) {
      EXPECT_EQ(element_bits(data.c.view()), expected) << stride;
    } else {
      EXPECT_EQ(s.code(), StatusCode::kTooLarge) << s.message();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, GemmErrorsTest, every_gemm(), gemm_test_name);

}  // namespace
}  // namespace quern::test
