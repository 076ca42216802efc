#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "ops/blocking.h"
#include "ops/bmm_run.h"

namespace quern {
namespace {

TEST(BmmBlocking, IsLegalForEveryShape) {
  for (int bytes : {1, 2, 4}) {
    for (int flags = 0; flags < 4; ++flags) {
      for (int64_t k : {0, 1, 64, 128, 512, 513, 4096, 17408, 1 << 20}) {
        GemmFacts facts{.k = k, .a_bytes = 2, .weight_bits = 8 * std::min(bytes, 2)};
        if (bytes == 4) facts.a_bytes = 4;
        facts.panel_registers = bytes == 1 ? 2 : 1;
        facts.other_registers = bytes == 1 ? 6 : 1;
        facts.row_step = (flags & 1) != 0 ? 16 : 1;
        facts.half_width = (flags & 2) != 0 && !facts.tiles();
        for (int64_t m = 1; m <= 300; ++m) {
          const GemmBlocking b = bmm_blocking(facts, m);
          ASSERT_EQ(invalid(b, facts), nullptr) << k << ' ' << m << ' ' << flags;
        }
      }
    }
  }
}

// Few rows are one stream of weights; more pass with two panels at a time, in one block of rows
// where that holds them.
TEST(BmmBlocking, RowsOfADecode) {
  GemmFacts facts{.k = 128};
  for (const int64_t m : {1, 8}) EXPECT_EQ(bmm_blocking(facts, m).nr, 1);
  for (const int64_t m : {9, 14, 15, 16}) {
    const GemmBlocking b = bmm_blocking(facts, m);
    EXPECT_EQ(b.nr, 2);
    EXPECT_EQ(b.mr, m <= 14 ? 14 : 8);
    EXPECT_GE(b.mc, m) << "weights pass once";
  }
  facts.half_width = true;
  EXPECT_EQ(bmm_blocking(facts, 9).mr, 8);
  facts.half_width = false;
  facts.k = 513;
  EXPECT_EQ(bmm_blocking(facts, 8).nr, default_blocking(facts, 8).nr) << "panels too long";
  facts.k = 4097;
  EXPECT_EQ(bmm_blocking(facts, 16).nr, default_blocking(facts, 16).nr) << "two leave L2";
}

}  // namespace
}  // namespace quern
