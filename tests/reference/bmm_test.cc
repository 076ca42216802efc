#include "reference/bmm.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "reference/numeric.h"

namespace quern::reference {
namespace {

std::vector<uint16_t> bf16(const std::vector<double>& values) {
  std::vector<uint16_t> out;
  for (const double v : values) out.push_back(bf16_from_double(v));
  return out;
}

BmmDesc desc_of(int64_t n, int64_t k) {
  BmmDesc desc;
  desc.n = n;
  desc.k = k;
  desc.c = DType::kF32;
  return desc;
}

// Two products by hand: [1 2] * [[5 6] [7 8]] and [3 4] * [[1 0] [0 -1]].
TEST(Bmm, BothOrders) {
  const std::vector<uint16_t> a = bf16({1, 2, 3, 4});
  const std::vector<uint16_t> kn = bf16({5, 6, 7, 8, 1, 0, 0, -1});
  const std::vector<uint16_t> nk = bf16({5, 7, 6, 8, 1, 0, 0, -1});
  for (const BmmOrder order : {BmmOrder::kNK, BmmOrder::kKN}) {
    std::vector<float> c(4);
    BmmArgs args;
    args.a = {a.data(), DType::kBF16, 2, 1, 2, 2, 2};
    args.b.values = {(order == BmmOrder::kNK ? nk : kn).data(), DType::kBF16, 2, 2, 2, 4, 2};
    args.b.order = order;
    args.c = mutable_batch_view(c.data(), 2, 1, 2);
    ASSERT_TRUE(bmm(desc_of(2, 2), args).ok());
    EXPECT_EQ(c, (std::vector<float>{19, 22, 3, -4}));
  }
}

// [M 2, H 2, D 1] seen as two heads, one B for both, and C likewise as heads.
TEST(Bmm, HeadsAndOneMatrixForAll) {
  const std::vector<uint16_t> a = bf16({1, 2, 3, 4});
  const std::vector<uint16_t> b = bf16({10});
  std::vector<float> c(4);
  BmmArgs args;
  args.a = {a.data(), DType::kBF16, 2, 2, 1, 1, 2};
  args.b.values = {b.data(), DType::kBF16, 2, 1, 1, 0, 1};
  args.c = mutable_batch_view(c.data(), 2, 2, 1);
  ASSERT_TRUE(bmm(desc_of(1, 1), args).ok());
  EXPECT_EQ(c, (std::vector<float>{10, 30, 20, 40}));
  args.c = mutable_heads_view(c.data(), 2, 2, 1);
  ASSERT_TRUE(bmm(desc_of(1, 1), args).ok());
  EXPECT_EQ(c, (std::vector<float>{10, 20, 30, 40}));
}

TEST(Bmm, ScalesOfColumnsAndOfMatrices) {
  const std::vector<uint16_t> a = bf16({1, 1, 1, 1});
  const std::vector<int8_t> b = {-128, 1, 2, 3, 4, 5, 6, 127};
  const std::vector<float> columns = {0.5f, 2, 4, 8}, matrices = {0.5f, 2};
  std::vector<float> c(4);
  BmmArgs args;
  args.a = {a.data(), DType::kBF16, 2, 1, 2, 2, 2};
  args.b.values = batch_view(b.data(), 2, 2, 2);
  args.b.scale = matrix_view(columns.data(), 2, 2);
  args.c = mutable_batch_view(c.data(), 2, 1, 2);
  ASSERT_TRUE(bmm(desc_of(2, 2), args).ok());
  EXPECT_EQ(c, (std::vector<float>{-63.5f, 10, 36, 1064}));
  args.b.scale = matrix_view(matrices.data(), 2, 1);
  ASSERT_TRUE(bmm(desc_of(2, 2), args).ok());
  EXPECT_EQ(c, (std::vector<float>{-63.5f, 2.5f, 18, 266}));
}

TEST(Bmm, BoundIsThatOfTheChain) {
  const std::vector<uint16_t> a = bf16({3, -5, 7}), b = bf16({2, 4, -6});
  BmmArgs args;
  args.a = {a.data(), DType::kBF16, 1, 1, 3, 3, 3};
  args.b.values = {b.data(), DType::kBF16, 1, 1, 3, 3, 3};
  const Exact exact = bmm_exact(desc_of(1, 3), args, 0);
  EXPECT_EQ(exact.at(0, 0).value, -56);
  EXPECT_NEAR(exact.at(0, 0).bound, 408 * 0x1p-24, 1e-30);
}

TEST(Bmm, ShapesThatDoNotMeet) {
  const std::vector<uint16_t> a(8), b(8);
  std::vector<float> c(8);
  BmmArgs good;
  good.a = {a.data(), DType::kBF16, 2, 1, 2, 2, 2};
  good.b.values = {b.data(), DType::kBF16, 2, 2, 2, 4, 2};
  good.c = mutable_batch_view(c.data(), 2, 1, 2);
  ASSERT_TRUE(bmm(desc_of(2, 2), good).ok());
  const auto refused = [&](auto breakage) {
    BmmArgs args = good;
    breakage(args);
    return !bmm(desc_of(2, 2), args).ok();
  };
  EXPECT_TRUE(refused([](BmmArgs& x) { x.a.cols = 1; }));
  EXPECT_TRUE(refused([](BmmArgs& x) { x.a.batch = 1; }));
  EXPECT_TRUE(refused([](BmmArgs& x) { x.a.rows = 0; }));
  EXPECT_TRUE(refused([](BmmArgs& x) { x.c.cols = 1; }));
  EXPECT_TRUE(refused([](BmmArgs& x) { x.b.values.batch = 1; }));
  EXPECT_TRUE(refused([](BmmArgs& x) { x.b.values.rows = 1; }));
  EXPECT_TRUE(refused([](BmmArgs& x) { x.b.values.dtype = DType::kS8; }));
}

}  // namespace
}  // namespace quern::reference
