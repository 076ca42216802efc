// Rows of A that lie at a multiple of 4 KiB from each other are copied to where they do not share
// cache sets; nobody may tell from the result.
#include "ops/prepared_rows.h"

#include <cstring>
#include <vector>

#include "tests/ops/gemm_fixture.h"
#include "tests/ops/test_pools.h"

namespace quern::test {
namespace {

constexpr RowPreparation kCopying[] = {RowPreparation::kQuantize, RowPreparation::kWiden,
                                       RowPreparation::kSpread};

TEST(PreparedRows, LieInDifferentSets) {
  for (const RowPreparation kind : kCopying) {
    for (int64_t k = 1; k <= 20000; k += k < 300 ? 1 : 31) {
      const PreparedRows rows(kind, 16, k, 2);
      EXPECT_EQ(rows.stride() % 128, 64) << "an even number of lines at k " << k;
      EXPECT_FALSE(meet_in_l1(rows.stride(), 16)) << "k " << k;
    }
  }
  // One line more than the rows need would put these at 4096 bytes.
  EXPECT_NE(PreparedRows(RowPreparation::kQuantize, 16, 4032, 1).stride(), 4096);
}

TEST(PreparedRows, MeetAtMultiplesOfAWay) {
  EXPECT_TRUE(meet_in_l1(4096, 12));
  EXPECT_TRUE(meet_in_l1(8192, 16));
  EXPECT_FALSE(meet_in_l1(8192, 11)) << "eleven and the weights' line fill a set of 12";
  EXPECT_FALSE(meet_in_l1(8192 + 64, 16));
  EXPECT_FALSE(meet_in_l1(2048, 16)) << "two sets of eight";
}

using RowsThatMeetTest = GemmTest;

// Each element of A is read with the same row and depth wherever its row lies, for block sizes on
// both sides of the limit and rows that threads share unevenly.
TEST_P(RowsThatMeetTest, GiveTheBitsOfRowsApart) {
  for (const int64_t m : {11, 12, 13, 16, 17}) {
    const GemmCase c = make_case(kind(), m, 70, 2048);  // f32 rows are 8192 bytes
    GemmData data(c);
    for (const int threads : {1, 2, 5}) {
      ScriptedPool pool(threads, ScriptedPool::Order::kRandom);
      const Context threaded = context_at(isa(), &pool);
      Result<GemmOp> op = GemmOp::create(threaded, c);
      ASSERT_TRUE(op.ok()) << op.status().message();
      ASSERT_TRUE(op->pack(data).ok());
      GemmOp::Args args = args_of(c, data);
      const auto row_bytes = args.a.cols * static_cast<int64_t>(size_of(args.a.dtype));
      const int64_t pad = 64;
      std::vector<std::byte> apart(static_cast<size_t>(m * (row_bytes + pad)));
      std::vector<std::byte> meeting(static_cast<size_t>(m * 8192));
      const auto bits_at = [&](std::vector<std::byte>& rows, int64_t step) {
        for (int64_t i = 0; i < m; ++i) {
          std::memcpy(
              rows.data() + i * step,
              static_cast<const std::byte*>(data.a.view().data) +
                  i * data.a.view().row_stride * static_cast<int64_t>(size_of(args.a.dtype)),
              static_cast<size_t>(row_bytes));
        }
        args.a.data = rows.data();
        args.a.row_stride = step / static_cast<int64_t>(size_of(args.a.dtype));
        data.c.set_all(0);
        std::vector<std::byte> scratch(op->scratch_bytes(m), std::byte{0xa5});
        const Status s = op->run(args, scratch);
        EXPECT_TRUE(s.ok()) << s.message();
        return element_bits(data.c.view());
      };
      const std::vector<uint32_t> expected = bits_at(apart, row_bytes + pad);
      EXPECT_EQ(bits_at(meeting, 8192), expected) << "m " << m << ", threads " << threads;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, RowsThatMeetTest, every_gemm(), gemm_test_name);

}  // namespace
}  // namespace quern::test
