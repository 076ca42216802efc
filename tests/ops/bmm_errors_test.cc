// What a caller can get wrong, one row each: the code, and the argument's name in the message.
#include <cstdint>
#include <functional>
#include <limits>

#include "quern/bf16_gemm.h"
#include "tests/ops/bmm_case.h"

namespace quern::test {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62;

struct ArgumentError {
  const char* name;
  std::function<void(BmmArgs&)> breakage;
  const char* in_message;
  StatusCode code = StatusCode::kInvalidArgument;
};

const std::vector<ArgumentError>& argument_errors() {
  using A = BmmArgs;
  const StatusCode kBig = StatusCode::kTooLarge;
  static const std::vector<ArgumentError> rows = {
      {"a null", [](A& x) { x.a.data = nullptr; }, "a.data"},
      {"a type", [](A& x) { x.a.dtype = DType::kF32; }, "a.dtype (f32) must be bf16"},
      {"a batch", [](A& x) { x.a.batch = 1; }, "a.batch (1) must be 3"},
      {"a columns", [](A& x) { x.a.cols -= 1; }, "a.cols"},
      {"a row stride", [](A& x) { x.a.row_stride = x.a.cols - 1; }, "a.row_stride"},
      {"a negative row stride", [](A& x) { x.a.row_stride = -x.a.row_stride; }, "a.row_stride"},
      {"a negative batch stride", [](A& x) { x.a.batch_stride = -1; }, "a.batch_stride (-1)"},
      {"a negative rows", [](A& x) { x.a.rows = -1; }, "a.rows"},
      {"a too many rows", [](A& x) { x.a.rows = kHuge; }, "a.rows", kBig},
      {"a row stride too long", [](A& x) { x.a.row_stride = kHuge; }, "a of", kBig},
      {"a batch stride too long", [](A& x) { x.a.batch_stride = kHuge; }, "a of 3 matrices", kBig},
      {"c null", [](A& x) { x.c.data = nullptr; }, "c.data"},
      {"c type", [](A& x) { x.c.dtype = DType::kF32; }, "c.dtype (f32) must be bf16"},
      {"c negative batch", [](A& x) { x.c.batch = -1; }, "c.batch"},
      {"c too many", [](A& x) { x.c.batch = kHuge; }, "c.batch", kBig},
      {"c rows", [](A& x) { x.c.rows += 1; }, "c.rows"},
      {"c columns", [](A& x) { x.c.cols -= 1; }, "c.cols"},
      {"c row stride", [](A& x) { x.c.row_stride = x.c.cols - 1; }, "c.row_stride"},
      {"c negative batch stride", [](A& x) { x.c.batch_stride = -100; }, "c.batch_stride (-100)"},
      {"c batch stride too long", [](A& x) { x.c.batch_stride = kHuge; }, "c of 3", kBig},
      {"c all the same", [](A& x) { x.c.batch_stride = 0; }, "matrices of c must not overlap"},
      {"c one element", [](A& x) { x.c.batch_stride = x.c.cols - 1; }, "c must not overlap"},
      {"c rows meet rows", [](A& x) { x.c.batch_stride = 2 * x.c.row_stride - 1; }, "c must not"},
      {"c is a", [](A& x) { x.c.data = const_cast<void*>(x.a.data); }, "c must not overlap a"},
  };
  return rows;
}

class BmmErrorsTest : public BmmTest {
 protected:
  BmmCase full_case() const {
    BmmCase c = make_bmm(b(), 3, 4, 20, 30);
    c.c_pad = 2;
    return c;
  }
  static void expect_status(const Status& s, StatusCode code, const char* text, const char* what) {
    EXPECT_EQ(s.code(), code) << what << ": " << s.message();
    EXPECT_NE(s.message().find(text), std::string::npos) << what << ": " << s.message();
  }
  static void expect_invalid(const Status& s, const char* text, const char* what = "") {
    expect_status(s, StatusCode::kInvalidArgument, text, what);
  }
  BmmOp make(const BmmCase& c, const BmmData& data) const {
    Result<BmmOp> op = BmmOp::create(ctx(), c);
    EXPECT_TRUE(op.ok()) << op.status().message();
    if (!op.ok()) return {};
    EXPECT_TRUE(op->pack(c, data).ok());
    return *op;
  }
};

TEST_P(BmmErrorsTest, ArgumentsOfRun) {
  const BmmCase c = full_case();
  BmmData data(c);
  const BmmOp op = make(c, data);
  ASSERT_TRUE(op.run(op.args(c, data)).ok());
  const std::vector<uint32_t> before = element_bits(data.c.store().view());
  std::vector<std::byte> scratch(op.op().scratch_bytes(4));
  for (const ArgumentError& e : argument_errors()) {
    BmmArgs args = op.args(c, data);
    e.breakage(args);
    expect_status(op.op().run(args, scratch), e.code, e.in_message, e.name);
  }
  EXPECT_EQ(element_bits(data.c.store().view()), before) << "a refused call wrote to c";
}

TEST_P(BmmErrorsTest, TheOtherWayToGiveB) {
  const BmmCase c = full_case();
  BmmData data(c);
  const BmmOp op = make(c, data);
  std::vector<std::byte> scratch(op.op().scratch_bytes(4));
  BmmArgs args = op.args(c, data);
  if (c.plain()) {
    const PackedWeights none;
    args.weights = &none;
    expect_invalid(op.op().run(args, scratch), "weights given, but this plan takes a plain B");
    args = op.args(c, data);
    args.b.dtype = DType::kS8;
    expect_invalid(op.op().run(args, scratch), "b.dtype (s8) must be bf16");
    args = op.args(c, data);
    args.b.batch = 1;
    expect_invalid(op.op().run(args, scratch), "b.batch (1) must be 3");
    args = op.args(c, data);
    std::swap(args.b.rows, args.b.cols);
    expect_invalid(op.op().run(args, scratch), "b.rows");
    args = op.args(c, data);
    args.b.batch_stride = -4;
    expect_invalid(op.op().run(args, scratch), "b.batch_stride (-4) must not be negative");
    args = op.args(c, data);
    args.b = BatchView();
    expect_invalid(op.op().run(args, scratch), "b.");
    return;
  }
  args.b = data.a.view();
  expect_invalid(op.op().run(args, scratch), "b given, but this plan takes packed weights");
  args = op.args(c, data);
  args.weights = nullptr;
  expect_invalid(op.op().run(args, scratch), "weights is null or empty");
}

TEST_P(BmmErrorsTest, Weights) {
  const BmmCase c = full_case();
  if (c.plain()) GTEST_SKIP() << "a plain B is not packed";
  BmmData data(c);
  const BmmOp good = make(c, data);
  std::vector<std::byte> scratch(good.op().scratch_bytes(4));
  for (int i = 0; i < 4; ++i) {
    BmmCase other = c;
    const char* text = "";
    switch (i) {
      case 0:
        other.problem.n = 21, text = "weights.n (21) must equal desc.n (20)";
        break;
      case 1:
        other.problem.k = 31, text = "weights.k (31) must equal desc.k (30)";
        break;
      case 2:
        other.problem.batch = 2, text = "weights.batch (2) must be 1 or that of c (3)";
        break;
      default:
        other.problem.b = c.codes() ? BmmOperand::kBF16 : BmmOperand::kS8, text = "weights.layout";
        break;
    }
    BmmData other_data(other);
    const BmmOp packer = make(other, other_data);
    BmmArgs args = good.args(c, data);
    args.weights = &packer.packed();
    expect_invalid(good.op().run(args, scratch), text);
  }
}

// What a batch packed is no GEMM's, unless it is one matrix; what a GEMM packed is a batch of one.
TEST_P(BmmErrorsTest, WeightsOfAGemm) {
  if (b() != BmmOperand::kBF16) GTEST_SKIP() << "one form says it";
  const BmmCase c = full_case();
  BmmData data(c);
  const BmmOp op = make(c, data);
  const auto gemm = Bf16Gemm::create(ctx(), {20, 30, DType::kBF16, {}, {}});
  ASSERT_TRUE(gemm.ok());
  std::vector<std::byte> scratch(1 << 20);
  const MatrixView a = data.a.matrix(0);
  const MatrixView out = data.c.matrix(0);
  const MutableMatrixView first = {const_cast<void*>(out.data), out.dtype, out.rows, out.cols,
                                   out.row_stride};
  expect_invalid(gemm->run({a, &op.packed(), first, {}, {}}, scratch),
                 "weights.batch (3) must be 1");
  const auto one = gemm->pack(data.b.matrix(1));
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->batch(), 1);
  BmmArgs args = op.args(c, data);
  args.weights = &*one;
  EXPECT_TRUE(op.op().run(args, scratch).ok());
}

TEST_P(BmmErrorsTest, Pack) {
  const BmmCase c = full_case();
  BmmData data(c);
  const BmmOp op = make(c, data);
  const auto refused = [&](auto breakage) {
    BmmWeights w = data.weights(c);
    breakage(w);
    return op.op().pack(w).status();
  };
  if (c.plain()) {
    expect_invalid(refused([](BmmWeights&) {}), "nothing to pack");
    return;
  }
  expect_invalid(refused([](BmmWeights& w) { w.values.dtype = DType::kF32; }), "w.values.dtype");
  expect_invalid(refused([](BmmWeights& w) { w.values.batch = -1; }), "w.values.batch");
  expect_invalid(refused([](BmmWeights& w) { w.values.rows -= 1; }), "w.values.rows");
  expect_invalid(refused([](BmmWeights& w) { w.values.cols += 1; }), "w.values.cols");
  expect_invalid(refused([](BmmWeights& w) { w.values.data = nullptr; }), "w.values.data");
  expect_invalid(refused([](BmmWeights& w) { w.values.batch_stride = -1; }),
                 "w.values.batch_stride");
  expect_invalid(refused([](BmmWeights& w) { w.values.row_stride = 3; }), "w.values.row_stride");
  expect_invalid(refused([](BmmWeights& w) { w.order = static_cast<BmmOrder>(2); }), "w.order (2)");
  expect_invalid(refused([](BmmWeights& w) { w.order = BmmOrder::kKN; }), "w.values.rows");
  // A scale is there exactly where the type of the values needs it (peers.md, C-T3).
  if (!c.codes()) {
    const float one = 1;
    expect_invalid(refused([&](BmmWeights& w) { w.scale = matrix_view(&one, 3, 1); }),
                   "w.scale given, but w.values (bf16) has none");
    return;
  }
  expect_invalid(refused([](BmmWeights& w) { w.scale = MatrixView(); }),
                 b() == BmmOperand::kS8 ? "w.scale is null, but w.values (s8) needs scales"
                                        : "w.scale is null, but w.values (e4m3) needs scales");
  expect_invalid(refused([](BmmWeights& w) { w.scale.dtype = DType::kS8; }), "w.scale.dtype");
  expect_invalid(refused([](BmmWeights& w) { w.scale.rows = 1; }), "w.scale.rows (1) must be 3");
  expect_invalid(refused([](BmmWeights& w) { w.scale.cols = 2; }), "w.scale.cols (2) must be 20");
}

TEST_P(BmmErrorsTest, Scratch) {
  const BmmCase c = full_case();
  BmmData data(c);
  const BmmOp op = make(c, data);
  const size_t needed = op.op().scratch_bytes(4);
  const Span<std::byte> none;
  if (needed == 0) {
    EXPECT_TRUE(op.op().run(op.args(c, data), none).ok()) << "none is needed";
    return;
  }
  expect_invalid(op.op().run(op.args(c, data), none), "scratch");
  std::vector<std::byte> scratch(needed);
  expect_invalid(op.op().run(op.args(c, data), {scratch.data(), needed - 1}), "scratch has");
  expect_invalid(op.op().run(op.args(c, data), {nullptr, needed}), "scratch has");
  const auto at = [&](const BatchView& view) {
    return reinterpret_cast<std::byte*>(const_cast<void*>(view.data));
  };
  expect_invalid(op.op().run(op.args(c, data), {at(data.a.view()), needed}), "scratch must not");
  expect_invalid(op.op().run(op.args(c, data), {at(data.c.view()), needed}), "scratch must not");
}

TEST_P(BmmErrorsTest, ScratchGrowsWithRowsAndNeverWraps) {
  auto pool = PersistentPool::create(3);
  ASSERT_TRUE(pool.ok());
  const Context threaded = context_at(isa(), pool->get());
  for (const int64_t k : {int64_t{0}, int64_t{30}, int64_t{5000}, int64_t{1} << 40}) {
    for (const int64_t n : {int64_t{0}, int64_t{20}, int64_t{1} << 48}) {
      Result<BmmOp> op = BmmOp::create(threaded, make_bmm(b(), 1, 1, n, k));
      ASSERT_TRUE(op.ok()) << op.status().message();
      size_t last = 0;
      for (const int64_t m :
           {int64_t{-5}, int64_t{0}, int64_t{1}, int64_t{7}, int64_t{16}, int64_t{17},
            int64_t{1000}, int64_t{1} << 31, kHuge, std::numeric_limits<int64_t>::max()}) {
        const size_t bytes = op->op().scratch_bytes(m);
        EXPECT_GE(bytes, last) << "m " << m << " k " << k;
        EXPECT_LT(bytes, size_t{1} << 62);
        last = bytes;
      }
    }
  }
}

TEST_P(BmmErrorsTest, Descs) {
  const auto refused = [&](auto breakage) {
    BmmDesc desc = full_case().desc();
    breakage(desc);
    return Bmm::create(ctx(), desc).status();
  };
  EXPECT_TRUE(refused([](BmmDesc&) {}).ok());
  expect_invalid(refused([](BmmDesc& d) { d.n = -1; }), "desc.n (-1)");
  expect_invalid(refused([](BmmDesc& d) { d.k = -1; }), "desc.k (-1)");
  expect_status(refused([](BmmDesc& d) { d.n = kHuge; }), StatusCode::kTooLarge, "desc.n", "n");
  expect_status(refused([](BmmDesc& d) { d.k = (int64_t{1} << 40) + 1; }), StatusCode::kTooLarge,
                "desc.k", "k");
  expect_invalid(refused([](BmmDesc& d) { d.c = DType::kS8; }), "desc.c (s8)");
  expect_invalid(refused([](BmmDesc& d) { d.b = static_cast<BmmOperand>(5); }), "desc.b (5)");
  expect_invalid(refused([](BmmDesc& d) { d.invariance = static_cast<Invariance>(2); }),
                 "desc.invariance (2)");
}

TEST_P(BmmErrorsTest, AnOpWithoutAPlan) {
  const Bmm none;
  expect_invalid(none.run({}, {}), "create()");
  expect_invalid(none.pack({}).status(), "create()");
  EXPECT_EQ(none.scratch_bytes(5), 0u);
  EXPECT_EQ(none.isa(), IsaLevel::kNone);
  EXPECT_EQ(none.desc().n, 0);
  EXPECT_NE(none.explain().find("create()"), std::string::npos);
}

// Nothing to do is not an error, and nothing is asked for that is not there.
TEST_P(BmmErrorsTest, NothingToDo) {
  for (const auto& [batch, m, n, k] :
       {std::tuple<int64_t, int64_t, int64_t, int64_t>{0, 3, 5, 7}, {2, 0, 5, 7}, {2, 3, 0, 7}}) {
    const BmmCase c = make_bmm(b(), batch, m, n, k);
    Result<BmmOp> op = BmmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok());
    BmmData data(c);
    ASSERT_TRUE(op->pack(c, data).ok());
    BmmArgs args = op->args(c, data);
    if (batch == 0 || m == 0) args.a.data = nullptr;
    args.c.data = nullptr;
    if (batch == 0 || n == 0) args.b.data = nullptr;
    const Status s = op->run(args);
    EXPECT_TRUE(s.ok()) << s.message();
    args.a.cols = 8;
    expect_invalid(op->run(args), "a.cols (8) must be 7");
  }
}

// A batch that grew empty is no error, whatever was packed for the full one.
TEST_P(BmmErrorsTest, NoMatrixNeedsNoWeightsOfItsOwn) {
  const BmmCase full = full_case();
  if (full.plain()) GTEST_SKIP() << "a plain B has c's batch";
  BmmData full_data(full);
  const BmmOp op = make(full, full_data);
  const BmmCase empty = make_bmm(b(), 0, 4, 20, 30);
  BmmData data(empty);
  BmmArgs args = op.args(empty, data);
  ASSERT_EQ(args.weights->batch(), 3);
  std::vector<std::byte> scratch(op.op().scratch_bytes(4));
  const Status s = op.op().run(args, scratch);
  EXPECT_TRUE(s.ok()) << s.message();
}

// Where there is no column there is nothing to scale.
TEST_P(BmmErrorsTest, NoColumnNeedsNoScale) {
  for (const auto& [batch, n] : {std::pair<int64_t, int64_t>{0, 20}, {3, 0}}) {
    const BmmCase c = make_bmm(b(), batch, 4, n, 30);
    if (!c.codes()) GTEST_SKIP() << "only s8 and e4m3 have scales";
    BmmData data(c);
    Result<BmmOp> op = BmmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok());
    BmmWeights w = data.weights(c);
    w.scale = {};
    const auto packed = op->op().pack(w);
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    EXPECT_EQ(packed->batch(), batch);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, BmmErrorsTest, every_bmm(), bmm_test_name);

}  // namespace
}  // namespace quern::test
