// Tables: rows one by one, tails, batches in every form, the shapes of MLA.
#include "tests/ops/bmm_case.h"

namespace quern::test {
namespace {

using BmmTableTest = BmmTest;

constexpr int64_t kBatches[] = {0, 1, 2, 3, 17};

// Each M for itself, as decoding sees it, in the two shapes of MLA at a quarter of their size.
TEST_P(BmmTableTest, EachOfOneToEightRows) {
  for (int64_t m = 1; m <= 8; ++m) {
    for (const int64_t batch : kBatches) {
      for (const auto& [n, k] : {std::pair<int64_t, int64_t>{128, 32}, {32, 128}, {33, 37}}) {
        BmmCase c = make_bmm(b(), batch, m, n, k);
        vary(c, static_cast<uint64_t>(m * 100 + batch));
        EXPECT_TRUE(check_bmm(ctx(), c));
      }
    }
  }
}

TEST_P(BmmTableTest, Tails) {
  uint64_t variant = 0;
  for (const int64_t k : {0, 1, 2, 3, 4, 5, 7, 8, 31, 32, 33, 63, 64, 65, 127, 130}) {
    for (const int64_t m : {1, 2, 5, 15, 16, 17, 33}) {
      for (const int64_t n : {1, 15, 16, 17, 31, 49}) {
        BmmCase c = make_bmm(b(), 1 + static_cast<int64_t>(variant % 3), m, n, k);
        vary(c, ++variant);
        ASSERT_TRUE(check_bmm(ctx(), c));
      }
    }
  }
}

TEST_P(BmmTableTest, EveryFormOfEveryOperand) {
  for (const int64_t batch : kBatches) {
    for (const BatchForm a : {BatchForm::kMatrices, BatchForm::kHeads, BatchForm::kShared}) {
      for (const BatchForm w : {BatchForm::kMatrices, BatchForm::kHeads, BatchForm::kShared}) {
        for (const BatchForm out : {BatchForm::kMatrices, BatchForm::kHeads}) {
          for (const int64_t gap : {0, 2}) {
            BmmCase c = make_bmm(b(), batch, 3, 21, 35);
            vary(c, static_cast<uint64_t>(batch) + 7);
            c.a_form = a;
            c.b_form = w;
            c.c_form = out;
            c.gap = gap;
            c.a_pad = c.c_pad = gap;
            EXPECT_TRUE(check_bmm(ctx(), c));
          }
        }
      }
    }
  }
}

TEST_P(BmmTableTest, EveryScale) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const bool of_matrix : {false, true}) {
      for (const BmmOrder order : {BmmOrder::kNK, BmmOrder::kKN}) {
        BmmCase c = make_bmm(b(), 3, 5, 37, 50);
        c.fill = Fill::kExact;
        c.scale = type;
        c.scale_of_matrix = of_matrix;
        c.order = order;
        EXPECT_TRUE(check_bmm(ctx(), c));
      }
    }
  }
}

// Rows beyond what is widened, and panels beyond what is packed, at once.
TEST_P(BmmTableTest, MoreThanOnePartOfRowsAndOfPanels) {
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1200, 17, 9},
                                {2, 1100, 140},
                                {2, 300, 4100},
                                {33, 520, 600}}) {
    for (const BatchForm w : {BatchForm::kMatrices, BatchForm::kShared}) {
      BmmCase c = make_bmm(b(), 2, m, n, k);
      c.b_form = w;
      c.fill = Fill::kExact;
      EXPECT_TRUE(check_bmm(ctx(), c));
    }
  }
}

// Rows of A a multiple of 4 KiB apart: copied where one register block of one panel reads them all,
// which is so with long panels.
TEST_P(BmmTableTest, RowsThatMeetInACache) {
  struct Shape {
    int64_t batch, k, next;  ///< next: where the next matrix's row begins
  };
  for (const Shape& s : {Shape{16, 127, 128}, {16, 128, 128}, {2, 4097, 5120}}) {
    for (const int64_t m : {11, 12, 15, 16, 17}) {
      BmmCase c = make_bmm(b(), s.batch, m, 40, s.k);
      c.a_pad = s.next - s.k;
      BmmData data(c);
      ASSERT_EQ(data.a.view().row_stride * 2 % 4096, 0);
      EXPECT_TRUE(check_bmm(ctx(), c));
    }
  }
}

// Many rows a multiple of 8 KiB apart are copied in parts where tiles read them for many columns.
TEST_P(BmmTableTest, RowsThatMeetInL2) {
  for (const auto& [batch, m, n, k] :
       {std::tuple<int64_t, int64_t, int64_t, int64_t>{2, 255, 512, 33},
        {2, 256, 511, 33},
        {2, 256, 512, 33},
        {2, 300, 513, 33},
        {1, 260, 512, 1100}}) {
    BmmCase c = make_bmm(b(), batch, m, n, k);
    c.a_pad = 4096 / batch - k;
    c.fill = Fill::kExact;
    BmmData data(c);
    ASSERT_EQ(data.a.view().row_stride * 2 % 8192, 0);
    EXPECT_TRUE(check_bmm(ctx(), c));
  }
}

TEST_P(BmmTableTest, ShapesOfMla) {
  const int64_t heads = isa().name == "amx_emulated" ? 3 : 22;
  for (const int64_t m : {1, 4, 16, 20}) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{512, 128}, {128, 512}}) {
      BmmCase c = make_bmm(b(), heads, m, n, k);
      EXPECT_TRUE(check_bmm(ctx(), c));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, BmmTableTest, every_bmm(), bmm_test_name);

}  // namespace
}  // namespace quern::test
