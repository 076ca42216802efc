// quantize_rows: every bit is defined, so everything is compared with the reference bit for bit.
#include <xmmintrin.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/ops/quantize_case.h"
#include "tests/ops/test_pools.h"
#include "tests/support/isa_list.h"
#include "tests/support/problem_cases.h"
#include "tests/support/property.h"

namespace quern::test {
namespace {

using QuantizeRowsTest = IsaTest;
constexpr double kInf = std::numeric_limits<double>::infinity();

QuantizeData run(const Context& ctx, const QuantizeCase& c, QuantizeData data) {
  const Result<QuantizeRows> op = make_quantize(ctx, c);
  EXPECT_TRUE(op.ok()) << op.status().message();
  if (!op.ok()) return data;
  const Status s = op->run(data.args(c));
  EXPECT_TRUE(s.ok()) << s.message();
  return data;
}

TEST_P(QuantizeRowsTest, DenseTails) {
  uint64_t variant = 0;
  for (int64_t k = 0; k <= 200; ++k) {
    for (const int64_t m : {1, 2, 3, 7}) {
      QuantizeCase c;
      c.m = m;
      c.k = k;
      for (int i = 0; i < 4; ++i) {
        vary(c, ++variant);
        ASSERT_TRUE(check_case(ctx(), c));
      }
    }
  }
}

TEST_P(QuantizeRowsTest, EveryGroupLength) {
  for (const DType type : {DType::kBF16, DType::kF32}) {
    for (int64_t group = 0; group <= 140; ++group) {
      QuantizeCase c;
      c.m = 3;
      c.k = 133;
      c.group = group;
      c.a = type;
      ASSERT_TRUE(check_case(ctx(), c));
    }
  }
}

TEST_P(QuantizeRowsTest, LongRows) {
  for (const int64_t k : {4096, 65537, 1 << 20}) {
    QuantizeCase c;
    c.m = 2;
    c.k = k;
    ASSERT_TRUE(check_case(ctx(), c));
  }
}

// bug_log T10. Row 0 zeros, row 1 ordinary, row 2 the smallest subnormal; NaN behind column 13.
TEST_P(QuantizeRowsTest, ZeroRowsAndWhatLiesBehindThem) {
  for (const DType type : {DType::kBF16, DType::kF32}) {
    QuantizeCase c;
    c.m = 3;
    c.k = 13;
    c.a = type;
    c.a_pad = 5;  // NaN
    QuantizeData data(c);
    data.a.set_row(0, 0);
    for (int64_t j = 0; j < 13; ++j) data.a.set_bits(2, j, 1);
    data = run(ctx(), c, std::move(data));
    for (int64_t j = 0; j < 13; ++j) {
      EXPECT_EQ(data.q.get(0, j), 0.0);
      EXPECT_EQ(data.q.get(2, j), 0.0);
    }
    const float smallest = 1e-10f / 127.0f;
    EXPECT_EQ(data.scale.get(0, 0), smallest);
    EXPECT_EQ(data.scale.get(0, 2), smallest);
    EXPECT_TRUE(std::isfinite(data.scale.get(0, 1)));
    EXPECT_EQ(data.sums.get(0, 0), 0.0);
    EXPECT_TRUE(matches_reference(c, data));
  }
}

TEST_P(QuantizeRowsTest, LiteralNumbers) {
  QuantizeCase c;
  c.k = 8;
  c.group = 5;
  c.a = DType::kF32;
  QuantizeData data(c);
  const double x[] = {254, -254, 1, 3, 5, -3, 0, 10};  // scale 2; 0.5, 1.5, 2.5 go to even
  const double q[] = {127, -127, 0, 2, 2, -2, 0, 5};
  for (int64_t j = 0; j < 8; ++j) data.a.set(0, j, x[j]);
  data = run(ctx(), c, std::move(data));
  for (int64_t j = 0; j < 8; ++j) EXPECT_EQ(data.q.get(0, j), q[j]) << j;
  EXPECT_EQ(data.scale.get(0, 0), 2.0);
  EXPECT_EQ(data.sums.get(0, 0), 4.0);
  EXPECT_EQ(data.sums.get(0, 1), 3.0);
}

// What is not finite, at every lane of a vector and both sides of its tail, spoils its row only.
TEST_P(QuantizeRowsTest, NotFiniteAtEveryPosition) {
  for (const DType type : {DType::kBF16, DType::kF32}) {
    for (const int64_t k : {1, 15, 16, 17, 31, 32, 33, 64, 79}) {
      for (int64_t at = 0; at < k; ++at) {
        for (const double value : {std::nan(""), kInf, -kInf}) {
          QuantizeCase c;
          c.m = 3;
          c.k = k;
          c.a = type;
          QuantizeData data(c);
          data.a.set(1, at, value);
          data = run(ctx(), c, std::move(data));
          ASSERT_TRUE(std::isnan(data.scale.get(0, 1))) << k << " " << at << " " << value;
          ASSERT_EQ(data.q.get(1, k - 1), 0.0);
          ASSERT_EQ(data.sums.get(1, 0), 0.0);
          ASSERT_TRUE(matches_reference(c, data));
        }
      }
    }
  }
}

TEST_P(QuantizeRowsTest, SignallingNanAndLargestNumbers) {
  for (const DType type : {DType::kBF16, DType::kF32}) {
    QuantizeCase c;
    c.m = 2;
    c.k = 20;
    c.a = type;
    QuantizeData data(c);
    data.a.set_bits(0, 7, type == DType::kBF16 ? 0x7f81 : 0x7f800001);
    data.a.set_bits(1, 7, type == DType::kBF16 ? 0xff7f : 0xff7fffff);  // the most negative
    data = run(ctx(), c, std::move(data));
    EXPECT_TRUE(std::isnan(data.scale.get(0, 0)));
    EXPECT_EQ(data.q.get(1, 7), -127.0);
    EXPECT_TRUE(matches_reference(c, data));
  }
}

TEST_P(QuantizeRowsTest, ThreadsDoNotMatter) {
  for (const int64_t m : {1, 5, 37, 300}) {
    QuantizeCase c;
    c.m = m;
    c.k = 501;
    c.group = 64;
    for (const int threads : {1, 2, 3, 7, 16, 64}) {
      ScriptedPool scripted(threads, ScriptedPool::Order::kRandom);
      EXPECT_TRUE(check_case(context_at(GetParam(), &scripted), c));
      EXPECT_LE(scripted.max_phases(), 1);
    }
    for (int threads = 1; threads <= 16; ++threads) {
      auto pool = PersistentPool::create(threads);
      ASSERT_TRUE(pool.ok()) << pool.status().message();
      EXPECT_TRUE(check_case(context_at(GetParam(), pool->get()), c));
    }
  }
}

TEST_P(QuantizeRowsTest, HostMxcsrIsNeitherUsedNorChanged) {
  constexpr unsigned kDaz = 0x0040, kFtz = 0x8000, kDefault = 0x1F80, kUpwards = 0x4000;
  for (const DType type : {DType::kBF16, DType::kF32}) {
    for (const unsigned mode : {0u, kDaz, kFtz, kDaz | kFtz, kUpwards}) {
      QuantizeCase c;
      c.m = 4;
      c.k = 77;
      c.a = type;
      c.fill = Fill::kExtreme;
      QuantizeData data(c);
      const Result<QuantizeRows> op = make_quantize(ctx(), c);
      ASSERT_TRUE(op.ok());
      const QuantizeRowsArgs args = data.args(c);
      _mm_setcsr(kDefault | mode);
      const Status s = op->run(args);
      const unsigned after = _mm_getcsr();
      _mm_setcsr(kDefault);
      ASSERT_TRUE(s.ok()) << s.message();
      EXPECT_EQ(after, kDefault | mode);
      EXPECT_TRUE(matches_reference(c, data));
    }
  }
}

TEST_P(QuantizeRowsTest, Errors) {
  QuantizeCase c;
  c.m = 3;
  c.k = 10;
  c.group = 4;
  QuantizeData data(c);
  const Result<QuantizeRows> op = make_quantize(ctx(), c);
  ASSERT_TRUE(op.ok());
  using Args = QuantizeRowsArgs;
  struct Row {
    void (*breakage)(Args&);
    const char* in_message;
  };
  const Row rows[] = {
      {[](Args& x) { x.a.data = nullptr; }, "a.data"},
      {[](Args& x) { x.a.dtype = DType::kF32; }, "a.dtype"},
      {[](Args& x) { x.a.cols = 11; }, "a.cols"},
      {[](Args& x) { x.a.rows = -1; }, "a.rows"},
      {[](Args& x) { x.a.row_stride = 9; }, "a.row_stride"},
      {[](Args& x) { x.q.data = nullptr; }, "q.data"},
      {[](Args& x) { x.q.dtype = DType::kU8; }, "q.dtype"},
      {[](Args& x) { x.q.rows = 2; }, "q.rows"},
      {[](Args& x) { x.q.cols = 9; }, "q.cols"},
      {[](Args& x) { x.q.row_stride = 9; }, "q.row_stride"},
      {[](Args& x) { x.scale.data = nullptr; }, "scale.data"},
      {[](Args& x) { x.scale.dtype = DType::kBF16; }, "scale.dtype"},
      {[](Args& x) { x.scale.size = 4; }, "scale.size"},
      {[](Args& x) { x.sums.cols = 2; }, "sums.cols"},
      {[](Args& x) { x.sums.rows = 2; }, "sums.rows"},
      {[](Args& x) { x.sums.dtype = DType::kF32; }, "sums.dtype"},
      {[](Args& x) { x.sums.row_stride = 1; }, "sums.row_stride"},
  };
  for (const Row& row : rows) {
    Args args = data.args(c);
    row.breakage(args);
    const Status s = op->run(args);
    EXPECT_EQ(s.code(), StatusCode::kInvalidArgument) << row.in_message;
    EXPECT_NE(s.message().find(row.in_message), std::string::npos) << s.message();
  }
  Args args = data.args(c);
  args.a.rows = args.q.rows = args.scale.size = args.sums.rows = int64_t{1} << 62;
  EXPECT_EQ(op->run(args).code(), StatusCode::kTooLarge);
}

TEST_P(QuantizeRowsTest, DescErrors) {
  const auto code = [this](int64_t k, DType a, int64_t group) {
    return QuantizeRows::create(ctx(), {k, a, group}).status().code();
  };
  EXPECT_EQ(code(int64_t{1} << 24, DType::kBF16, 0), StatusCode::kOk);
  EXPECT_EQ(code((int64_t{1} << 24) + 1, DType::kBF16, 0), StatusCode::kTooLarge);
  EXPECT_EQ(code(int64_t{1} << 62, DType::kF32, 0), StatusCode::kTooLarge);
  EXPECT_EQ(code(-1, DType::kF32, 0), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(8, DType::kF32, -1), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(8, DType::kF16, 0), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(8, DType::kS8, 0), StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Ops, QuantizeRowsTest, ::testing::ValuesIn(isas_to_test()), isa_name);

class QuantizeRowsPropertyTest : public ::testing::TestWithParam<int> {};

TEST_P(QuantizeRowsPropertyTest, MatchesReference) {
  const TestIsa isa = isas_to_test()[0];
  if (!isa.skip_reason.empty()) GTEST_SKIP() << isa.skip_reason;
  run_property("quantize_rows", GetParam(), [&isa](uint64_t seed) {
    return check_case(shared_context(isa), random_quantize_case(seed));
  });
}
INSTANTIATE_TEST_SUITE_P(Shard, QuantizeRowsPropertyTest, ::testing::Range(0, kPropertyShards));

}  // namespace
}  // namespace quern::test
