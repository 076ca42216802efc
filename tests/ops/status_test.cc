#include "quern/status.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "ops/status_text.h"
#include "ops/text_writer.h"
#include "quern/isa.h"
#include "tests/ops/allocation_counter.h"

namespace quern {
namespace {

TEST(Status, DefaultIsOk) {
  const Status s;
  EXPECT_TRUE(s.ok());
  EXPECT_EQ(s.message(), "ok");
}

TEST(Status, IsCheapToReturn) {
  static_assert(std::is_trivially_copyable_v<Status>);
  // 40 bytes and the file name, which nobody touches on the way of a call that works.
  static_assert(sizeof(Status) <= 40 + Status::kFileBytes);
}

TEST(Status, NamesAFile) {
  const Status s = Status::about_file(StatusCode::kBadFile, "{f}: {s} ({0}) must be {1}", "a/b.qpw",
                                      2, 1, "version");
  EXPECT_EQ(s.message(), "bad file: a/b.qpw: version (2) must be 1");
  const Status copy = s;  // the name travels with the value
  EXPECT_STREQ(copy.file(), "a/b.qpw");
  EXPECT_STREQ(Status(StatusCode::kInternal, "{f}").file(), "");
  EXPECT_EQ(Status(StatusCode::kInternal, "<{f}>").message(), "internal error: <>");
}

TEST(Status, KeepsTheEndOfALongPath) {
  for (size_t length = 0; length < 300; ++length) {
    std::string path;
    for (size_t i = 0; i < length; ++i) path += static_cast<char>('a' + (length - i) % 26);
    const Status s = Status::about_file(StatusCode::kIoError, "{f}", path);
    const std::string kept =
        length < Status::kFileBytes ? path : "..." + path.substr(length - Status::kFileBytes + 4);
    ASSERT_EQ(s.file(), kept);
    ASSERT_EQ(s.message(), "I/O error: " + kept);
  }
}

TEST(Status, MessageSubstitutesBothValues) {
  const Status s(StatusCode::kInvalidArgument, "a.cols ({0}) must equal desc.k ({1})", 4095, 4096);
  EXPECT_FALSE(s.ok());
  EXPECT_EQ(s.message(), "invalid argument: a.cols (4095) must equal desc.k (4096)");
}

TEST(Status, ValuesMayRepeatSwapAndBeExtreme) {
  const Status s(StatusCode::kTooLarge, "{1}{0}{1}", std::numeric_limits<int64_t>::min(),
                 std::numeric_limits<int64_t>::max());
  EXPECT_EQ(s.message(), "too large: 9223372036854775807-92233720368547758089223372036854775807");
}

TEST(Status, SubjectIsSubstituted) {
  const Status s(StatusCode::kInvalidArgument, "{s}.rows ({0}) must equal {s}.n ({1})", 3, 4, "w");
  EXPECT_EQ(s.message(), "invalid argument: w.rows (3) must equal w.n (4)");
  EXPECT_EQ(Status(StatusCode::kInternal, "<{s}>").message(), "internal error: <>");
  EXPECT_EQ(Status(StatusCode::kInternal, "<{s}>", 0, 0, nullptr).message(), "internal error: <>");
}

TEST(Status, EnumValuesAreWrittenByName) {
  const auto text = [](const char* t, int64_t v0, int64_t v1 = 0) {
    return Status(StatusCode::kInternal, t, v0, v1, "a").message().substr(16);
  };
  EXPECT_EQ(text("{s}.dtype ({0:dtype}) must be {1:dtype}", status_value(DType::kF16),
                 status_value(DType::kS8)),
            "a.dtype (f16) must be s8");
  EXPECT_EQ(text("{0:dtype} {1:dtype}", status_value(DType::kE8M0), status_value(DType::kE2M1)),
            "e8m0 e2m1");
  EXPECT_EQ(text("{0:dtypes}", status_value({DType::kE4M3, DType::kE5M2})), "e4m3 or e5m2");
  EXPECT_EQ(text("{0:dtypes}", status_value({DType::kBF16})), "bf16");
  EXPECT_EQ(text("{0:dtypes}", status_value({DType::kBF16, DType::kF32})), "f32 or bf16");
  EXPECT_EQ(text("{0:dtypes}", status_value({DType::kF32, DType::kBF16, DType::kF16})),
            "f32, bf16 or f16");
  EXPECT_EQ(text("{1:layout}, not {0:layout}", status_value(WeightLayout::kNone),
                 status_value(WeightLayout::kU8Vnni4N16GateUp)),
            "u8.vnni4.n16.gateup.v2, not none");
}

TEST(Status, EnumValuesWithoutANameStayNumbers) {
  const Status s(StatusCode::kInternal, "{0:dtype} {1:layout}", 77, 9);
  EXPECT_EQ(s.message(), "internal error: 77 9");
  EXPECT_EQ(Status(StatusCode::kInternal, "{0:nonsense}", 5).message(), "internal error: 5");
}

TEST(Status, OtherBracesStay) {
  const Status s(StatusCode::kInternal, "{2} {} {0 {x} {", 7, 8);
  EXPECT_EQ(s.message(), "internal error: {2} {} {0 {x} {");
  EXPECT_EQ(Status(StatusCode::kInternal, "{").message(), "internal error: {");
  EXPECT_EQ(Status(StatusCode::kInternal, "{0").message(), "internal error: {0");
}

TEST(Status, MessageCanBeWrittenWithoutAllocation) {
  const Status s(StatusCode::kTooLarge, "{s} ({0}) is above {1}", 5, 4, "desc.k");
  const int64_t before = test::allocations();
  char buffer[64];
  TextWriter out(buffer, sizeof buffer);
  write_message(s, &out);
  EXPECT_EQ(test::allocations(), before);
  EXPECT_EQ(std::string(out.data(), out.size()), "too large: desc.k (5) is above 4");
  EXPECT_EQ(s.message(), "too large: desc.k (5) is above 4");
}

TEST(Status, LongTextsComeWhole) {
  static const std::string text(1000, 'x');
  EXPECT_EQ(Status(StatusCode::kInternal, text.c_str()).message(), "internal error: " + text);
}

TEST(Status, EmptyAndNullTextGiveTheCode) {
  EXPECT_EQ(Status(StatusCode::kOutOfMemory, "").message(), "out of memory");
  EXPECT_EQ(Status(StatusCode::kOutOfMemory, nullptr).message(), "out of memory");
}

TEST(Status, EveryCodeHasItsName) {
  EXPECT_STREQ(to_string(StatusCode::kOk), "ok");
  EXPECT_STREQ(to_string(StatusCode::kInvalidArgument), "invalid argument");
  EXPECT_STREQ(to_string(StatusCode::kUnsupported), "unsupported");
  EXPECT_STREQ(to_string(StatusCode::kTooLarge), "too large");
  EXPECT_STREQ(to_string(StatusCode::kOutOfMemory), "out of memory");
  EXPECT_STREQ(to_string(StatusCode::kJitUnavailable), "JIT unavailable");
  EXPECT_STREQ(to_string(StatusCode::kInternal), "internal error");
  EXPECT_STREQ(to_string(StatusCode::kIoError), "I/O error");
  EXPECT_STREQ(to_string(StatusCode::kBadFile), "bad file");
  EXPECT_STREQ(to_string(static_cast<StatusCode>(99)), "unknown status");
}

TEST(Result, HoldsAValueOrAStatus) {
  const Result<std::string> good(std::string("x"));
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(*good, "x");
  const Result<std::string> bad(Status(StatusCode::kUnsupported, "no"));
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), StatusCode::kUnsupported);
}

TEST(IsaLevel, Names) {
  EXPECT_STREQ(to_string(IsaLevel::kNone), "none");
  EXPECT_STREQ(to_string(IsaLevel::kAvx512), "avx512");
  EXPECT_STREQ(to_string(IsaLevel::kAmx), "amx");
  EXPECT_STREQ(to_string(static_cast<IsaLevel>(7)), "?");
}

}  // namespace
}  // namespace quern
