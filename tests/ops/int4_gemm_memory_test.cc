// Stored int4 weights whose offsets pass 2^32 bytes, and very many columns.
#include <cstring>

#include "tests/ops/gemm_fixture.h"

namespace quern::test {
namespace {

using Int4MemoryTest = GemmTest;

// Rows of stored words 2^30 elements apart: offsets in bytes pass 2^31 and 2^32.
TEST_P(Int4MemoryTest, StoredRowsFarApart) {
  const int64_t stride = (int64_t{1} << 30) + 3;
  for (const Int4Storage storage : kInt4Storages) {
    GemmCase c = make_case(kind(), 2, 9, 17);
    c.storage = storage;
    c.problem.group = 16;
    c.problem.zeros = Int4Zeros::kInteger;
    GemmData data(c);
    const std::vector<uint32_t> expected = bits_in(ctx(), c);
    SparseBuffer far[3] = {SparseBuffer(size_t{18} << 32), SparseBuffer(size_t{18} << 31),
                           SparseBuffer(size_t{18} << 32)};
    if (!far[0].data() || !far[1].data() || !far[2].data()) {
      GTEST_SKIP() << "the system refuses 180 GiB of address space";
    }
    Int4Weights w = data.int4_weights(0);
    size_t next = 0;
    for (MatrixView* view : {&w.codes, &w.scale, &w.zero}) {
      unsigned char* const to = far[next++].data();
      const auto size = static_cast<int64_t>(size_of(view->dtype));
      for (int64_t i = 0; i < view->rows; ++i) {
        std::memcpy(to + i * stride * size,
                    static_cast<const char*>(view->data) + i * view->row_stride * size,
                    static_cast<size_t>(view->cols * size));
      }
      view->data = to;
      view->row_stride = stride;
    }
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok());
    const Status s = op->pack_int4(w);
    ASSERT_TRUE(s.ok()) << s.message();
    EXPECT_EQ(output_bits(*op, c, data), expected);
  }
}

TEST_P(Int4MemoryTest, ManyColumnsOfDepthOneSlow) {
  const int64_t n = (int64_t{1} << 20) + 5;
  const GemmCase c = make_case(kind(), 8, n, 1);
  std::vector<int32_t> words(static_cast<size_t>(n), 0x08);
  std::vector<float> scale(static_cast<size_t>(n), 0.5f);
  words.front() = words.back() = 0x0b;  // 3 above the zero
  Int4Weights w;
  w.codes = matrix_view(words.data(), 1, n);
  w.scale = matrix_view(scale.data(), 1, n);
  GemmCase f32_scales = c;
  f32_scales.problem.scale = DType::kF32;
  Result<GemmOp> op = GemmOp::create(ctx(), f32_scales);
  ASSERT_TRUE(op.ok()) << op.status().message();
  ASSERT_TRUE(op->pack_int4(w).ok());
  GemmData data(make_case(kind(), 8, 1, 1));
  data.a.set_all(2);
  TestMatrix out(DType::kBF16, 8, n);
  GemmOp::Args args;
  args.a = data.a.view();
  args.c = out.mutable_view();
  ASSERT_TRUE(op->run(args).ok());
  for (const int64_t i : {0, 7}) {
    EXPECT_NEAR(out.get(i, 0), 3, 0.02);
    EXPECT_NEAR(out.get(i, n - 1), 3, 0.02);
    EXPECT_EQ(out.get(i, n / 2), 0.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Int4MemoryTest,
                         ::testing::Combine(::testing::ValuesIn(isas_to_test()),
                                            ::testing::ValuesIn(kInt4Kinds)),
                         gemm_test_name);

}  // namespace
}  // namespace quern::test
