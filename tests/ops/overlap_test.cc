// Operands in the same memory: what counts as overlapping, and that every op refuses it.
#include "ops/overlap.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "quern/quantize_rows.h"
#include "tests/ops/gemm_fixture.h"

namespace quern::test {
namespace {

struct Rows {
  int64_t begin, rows, cols, stride;
};

MatrixView view_of(const Rows& r, const int8_t* base) {
  return matrix_view(base + r.begin, r.rows, r.cols, r.stride);
}

std::set<int64_t> bytes_of(const Rows& r) {
  std::set<int64_t> bytes;
  for (int64_t i = 0; i < r.rows; ++i) {
    for (int64_t j = 0; j < r.cols; ++j) bytes.insert(r.begin + i * r.stride + j);
  }
  return bytes;
}

bool share_a_byte(const Rows& x, const Rows& y) {
  const std::set<int64_t> in_x = bytes_of(x);
  const std::set<int64_t> in_y = bytes_of(y);
  return std::any_of(in_x.begin(), in_x.end(), [&](int64_t b) { return in_y.count(b) != 0; });
}

TEST(Overlap, IsExactlySharingAByte) {
  const std::vector<int8_t> base(400);
  Rng rng(1);
  int sharing = 0, apart = 0, interleaved = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto random_rows = [&rng](int64_t stride) {
      Rows r{rng.in(0, 60), rng.in(0, 5), rng.in(0, 9), 0};
      r.stride =
          std::max<int64_t>(stride == 0 ? rng.in(1, 20) : stride, std::max<int64_t>(r.cols, 1));
      return r;
    };
    const Rows x = random_rows(0);
    const Rows y = random_rows(i % 2 == 0 ? 0 : x.stride);
    const bool expected = share_a_byte(x, y);
    const Region rx(view_of(x, base.data())), ry(view_of(y, base.data()));
    ASSERT_EQ(rx.overlaps(ry), expected)
        << x.begin << ' ' << x.rows << 'x' << x.cols << '/' << x.stride << " and " << y.begin << ' '
        << y.rows << 'x' << y.cols << '/' << y.stride;
    ASSERT_EQ(ry.overlaps(rx), expected);
    (expected ? sharing : apart) += 1;
    const auto last = [](const Rows& r) { return r.begin + (r.rows - 1) * r.stride + r.cols; };
    const bool ranges_meet = x.begin < last(y) && y.begin < last(x);
    if (!expected && ranges_meet && x.rows * x.cols * y.rows * y.cols > 0) ++interleaved;
  }
  EXPECT_GT(sharing, 1000);
  EXPECT_GT(apart, 1000);
  EXPECT_GT(interleaved, 100) << "slices of one buffer must be among the cases";
}

TEST(Overlap, NothingIsApartFromEverything) {
  const std::vector<int8_t> base(16);
  const Region all(base.data(), base.size());
  EXPECT_FALSE(all.overlaps(Region(nullptr, 16)));
  EXPECT_FALSE(all.overlaps(Region(base.data(), 0)));
  EXPECT_FALSE(all.overlaps(Region(MatrixView())));
  EXPECT_FALSE(all.overlaps(Region(VectorView())));
  EXPECT_TRUE(all.overlaps(Region(base.data() + 15, 1)));
  EXPECT_EQ(all.distance_to(Region(base.data() + 15, 1)), 15);
}

class GemmOverlapTest : public GemmTest {
 protected:
  void SetUp() override {
    GemmTest::SetUp();
    if (IsSkipped()) return;
    case_ = make_case(kind(), 3, 20, 30);
    case_.problem.epilogue.bias = true;
    case_.problem.epilogue.residual = true;
    data_ = std::make_unique<GemmData>(case_);
    Result<GemmOp> op = GemmOp::create(ctx(), case_);
    ASSERT_TRUE(op.ok()) << op.status().message();
    op_ = *op;
    ASSERT_TRUE(op_.pack(*data_).ok());
    scratch_.resize(op_.scratch_bytes(3));
    memory_.resize(1 << 16);
  }
  GemmOp::Args args() { return args_of(case_, *data_); }
  void expect_refused(const GemmOp::Args& args, const std::string& text) {
    const std::vector<std::byte> before = memory_;
    const Status s = op_.run(args, scratch_);
    EXPECT_EQ(s.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(s.message().find(text), std::string::npos) << s.message();
    EXPECT_EQ(memory_, before) << "a refused call wrote";
  }
  std::byte* at(int64_t i) { return memory_.data() + i; }

  GemmCase case_;
  std::unique_ptr<GemmData> data_;
  GemmOp op_;
  std::vector<std::byte> scratch_;
  std::vector<std::byte> memory_;
};

TEST_P(GemmOverlapTest, COverAnInput) {
  GemmOp::Args x = args();
  x.c.data = at(64);
  x.a.data = at(64);
  expect_refused(x, "c must not overlap a, which begins 0 bytes after it");
  x.a.data = at(62);  // the last element of a row
  expect_refused(x, "c must not overlap a, which begins -2 bytes after it");
  x = args();
  x.c.data = at(64);
  x.bias.data = at(64 + 4);
  expect_refused(x, "c must not overlap bias, which begins 4 bytes after it");
  x = args();
  x.c.data = const_cast<std::byte*>(op_.packed().data());
  const Status s = op_.run(x, scratch_);
  EXPECT_NE(s.message().find("c must not overlap weights"), std::string::npos) << s.message();
}

TEST_P(GemmOverlapTest, CsRowsOverEachOther) {
  GemmOp::Args x = args();
  x.c.row_stride = 19;
  expect_refused(x, "c.row_stride (19) must be at least c.cols (20)");
}

TEST_P(GemmOverlapTest, TheResidualIsCOrApart) {
  GemmOp::Args x = args();
  x.residual = x.c;
  EXPECT_TRUE(op_.run(x, scratch_).ok());
  x.c.data = at(64);
  x.c.row_stride = 40;
  x.residual = x.c;
  x.residual.data = at(66);
  expect_refused(x, "residual must be c itself or not overlap it, but begins 2 bytes after c");
  x.residual = x.c;
  x.residual.row_stride = 41;
  expect_refused(x, "residual must be c itself or not overlap it, but begins 0 bytes after c");
  x.residual = x.c;
  x.residual.data = at(64 + 20 * 2);  // the columns beside C in the same buffer
  EXPECT_TRUE(op_.run(x, scratch_).ok());
}

TEST_P(GemmOverlapTest, SlicesOfOneBufferAreApart) {
  const int64_t row = 256;
  GemmOp::Args x = args();
  const auto a_bytes = static_cast<int64_t>(size_of(x.a.dtype));
  for (int64_t i = 0; i < 3; ++i) {
    std::memcpy(at(i * row), static_cast<const char*>(x.a.data) + i * x.a.row_stride * a_bytes,
                static_cast<size_t>(30 * a_bytes));
  }
  ASSERT_TRUE(op_.run(x, scratch_).ok());
  const std::vector<uint32_t> expected = element_bits(data_->c.view());
  x.a.data = at(0);
  x.a.row_stride = row / a_bytes;
  x.c.data = at(30 * a_bytes);
  x.c.row_stride = row / 2;
  const Status s = op_.run(x, scratch_);
  ASSERT_TRUE(s.ok()) << s.message();
  EXPECT_EQ(element_bits(MatrixView(x.c)), expected);
}

TEST_P(GemmOverlapTest, ScratchOverAnOperand) {
  if (scratch_.empty()) GTEST_SKIP() << "this op needs no scratch";
  // Memory for one operand with the scratch over it, and for nothing else.
  std::vector<std::byte> shared(scratch_.size() + 4096);
  const auto refuse = [&](const GemmOp::Args& x) {
    return op_.run(x, {shared.data(), scratch_.size()}).message();
  };
  GemmOp::Args x = args();
  x.a.data = shared.data();
  EXPECT_NE(refuse(x).find("scratch must not overlap a,"), std::string::npos) << refuse(x);
  x = args();
  x.c.data = shared.data();
  EXPECT_NE(refuse(x).find("scratch must not overlap c,"), std::string::npos) << refuse(x);
  x = args();
  x.bias.data = shared.data();
  EXPECT_NE(refuse(x).find("scratch must not overlap bias,"), std::string::npos) << refuse(x);
}

INSTANTIATE_TEST_SUITE_P(Ops, GemmOverlapTest, every_gemm(), gemm_test_name);

TEST(QuantizeOverlap, EveryPairIsRefused) {
  const auto op = QuantizeRows::create(Context(), {16, DType::kBF16, 0});
  if (!op.ok()) GTEST_SKIP() << "not run: " << op.status().message();
  alignas(8) std::byte memory[1024] = {};
  QuantizeRowsArgs good;
  good.a = {memory, DType::kBF16, 2, 16, 16};
  good.q = {memory + 64, DType::kS8, 2, 16, 16};
  good.scale = {memory + 96, DType::kF32, 2};
  good.sums = {memory + 104, DType::kS32, 2, 1, 1};
  ASSERT_TRUE(op->run(good).ok());
  const auto message = [&](auto change) {
    QuantizeRowsArgs args = good;
    change(args);
    return op->run(args).message();
  };
  using Args = QuantizeRowsArgs;
  EXPECT_NE(message([&](Args& x) { x.q.data = memory; }).find("q must not overlap a"),
            std::string::npos);
  EXPECT_NE(message([&](Args& x) { x.q.data = memory + 72; }).find("q must not overlap scale"),
            std::string::npos);
  EXPECT_NE(message([&](Args& x) { x.sums.data = memory + 92; }).find("q must not overlap sums"),
            std::string::npos);
  EXPECT_NE(message([&](Args& x) { x.scale.data = memory + 56; }).find("scale must not overlap a"),
            std::string::npos);
  EXPECT_NE(message([&](Args& x) { x.sums.data = memory + 4; }).find("sums must not overlap a"),
            std::string::npos);
  EXPECT_NE(
      message([&](Args& x) { x.sums.data = memory + 100; }).find("sums must not overlap scale"),
      std::string::npos);
}

}  // namespace
}  // namespace quern::test
