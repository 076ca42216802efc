#include "tests/support/guard_buffer.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace quern::test {
namespace {

// Volatile: the access is the test, the value is not used.
void read_byte(const unsigned char* p) {
  (void)*static_cast<const volatile unsigned char*>(p);
}
void write_byte(unsigned char* p) {
  *static_cast<volatile unsigned char*>(p) = 1;
}

TEST(GuardBufferDeathTest, FaultsOneByteOutsideOnTheFlushSide) {
  const GuardBuffer end(100, Flush::kEnd);
  read_byte(end.data());
  read_byte(end.data() + 99);
  EXPECT_DEATH(read_byte(end.data() + 100), "");
  const GuardBuffer start(100, Flush::kStart);
  read_byte(start.data() + 99);
  EXPECT_DEATH(read_byte(start.data() - 1), "");
}

TEST(GuardBufferDeathTest, BothSidesAreGuardedWhenTheSizeFillsItsPages) {
  const GuardBuffer b(4096, Flush::kStart);
  EXPECT_DEATH(read_byte(b.data() - 1), "");
  EXPECT_DEATH(read_byte(b.data() + 4096), "");
}

TEST(GuardBufferDeathTest, ReadOnlyFaultsOnWrite) {
  GuardBuffer b(8, Flush::kEnd);
  write_byte(b.data());
  b.make_read_only();
  read_byte(b.data());
  EXPECT_DEATH(write_byte(b.data()), "");
  b.make_writable();
  write_byte(b.data() + 7);
}

TEST(GuardBufferDeathTest, AnEmptyOperandMayNotBeTouched) {
  const GuardBuffer b(0, Flush::kEnd);
  ASSERT_NE(b.data(), nullptr);
  EXPECT_DEATH(read_byte(b.data()), "");
}

TEST(GuardBuffer, OffsetGivesEveryAlignment) {
  for (size_t offset = 0; offset < 64; ++offset) {
    const GuardBuffer start(128, Flush::kStart, offset);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(start.data()) % 64, offset);
    const GuardBuffer end(128, Flush::kEnd, offset);
    EXPECT_EQ((reinterpret_cast<uintptr_t>(end.data()) + offset) % 64, 0u);
  }
}

TEST(GuardBuffer, SeesAWriteIntoTheSlack) {
  GuardBuffer before(16, Flush::kEnd, 3);
  EXPECT_TRUE(before.slack_intact());
  before.data()[15] = 0;
  EXPECT_TRUE(before.slack_intact());
  before.data()[-1] = 0;
  EXPECT_FALSE(before.slack_intact());
  GuardBuffer after(16, Flush::kStart, 3);
  after.data()[16] = 0;
  EXPECT_FALSE(after.slack_intact());
}

TEST(SparseBuffer, ReadsAsZeroFarAway) {
  const SparseBuffer b(size_t{1} << 36);
  if (!b.data()) GTEST_SKIP() << "the system refuses 64 GiB of address space";
  EXPECT_EQ(b.data()[size_t{5} << 32], 0);
  b.data()[size_t{7} << 32] = 9;
  EXPECT_EQ(b.data()[size_t{7} << 32], 9);
}

}  // namespace
}  // namespace quern::test
