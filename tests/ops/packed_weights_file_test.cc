// What map() says about files that save() did not write: every byte count, flips, every field.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <limits>

#include "ops/checksum.h"
#include "quern/packed_weights.h"
#include "tests/ops/packed_file.h"
#include "tests/support/temp_dir.h"

namespace quern::test {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

/// A saved file that the tests damage, and what map() says.
class PackedWeightsFile : public ::testing::Test {
 protected:
  void SetUp() override { save(WeightLayout::kU8Vnni4N16, 1, 1); }
  void save(WeightLayout layout, int64_t n, int64_t k) { save(make_weights(layout, n, k)); }
  void save(const PackedWeights& weights) {
    const Status s = weights.save(path());
    ASSERT_TRUE(s.ok()) << s.message();
    image_.bytes = read_file(path());
  }
  std::string path() const { return dir_.file("w.qpw"); }
  Result<PackedWeights> map(bool verify = false) const {
    MapWeightsOptions options;
    options.verify = verify;
    return PackedWeights::map(path(), options);
  }
  Status map(const FileImage& image) const {
    write_file(path(), image.bytes);
    return map().status();
  }
  /// The header's checksum is right and `at` holds `value`: the message names all that matters.
  template <typename T>
  void expect_refused(size_t at, T value, const std::string& part) const {
    FileImage image = image_;
    image.set<T>(at, value);
    image.seal();
    const Status s = map(image);
    EXPECT_EQ(s.code(), StatusCode::kBadFile) << s.message();
    EXPECT_NE(s.message().find("w.qpw: " + part), std::string::npos) << s.message() << "\n" << part;
  }

  TempDir dir_;
  FileImage image_;
};

TEST_F(PackedWeightsFile, FormatIsTheDocumentedOne) {
  save(WeightLayout::kU8Vnni4N16GateUp, 19, 6);
  const FileImage& f = image_;
  EXPECT_EQ(f.bytes.substr(0, 8), "quernpw\n");
  EXPECT_EQ(f.get<uint32_t>(8), 0x01020304u);
  EXPECT_EQ(f.get<uint32_t>(12), 3u);
  EXPECT_EQ(f.get<uint32_t>(16), 4096u);
  EXPECT_EQ(f.get<uint32_t>(20), 0x0212u);
  EXPECT_EQ(f.get<uint32_t>(24), 4u);
  EXPECT_EQ(f.get<uint32_t>(28), 1u);
  EXPECT_EQ(f.get<int64_t>(32), 19);
  EXPECT_EQ(f.get<int64_t>(40), 6);
  for (size_t at = 48; at < 64; at += 8) EXPECT_EQ(f.get<int64_t>(at), 0) << at;
  const int64_t panel = 16 * 64, panels = 4, scales = panels * 16 * 4;
  EXPECT_EQ(f.get<int64_t>(64), panel);
  EXPECT_EQ(f.get<int64_t>(72), panels * panel);
  EXPECT_EQ(f.get<int64_t>(80), 4096);
  EXPECT_EQ(f.get<int64_t>(88), panels * panel + scales);
  ASSERT_EQ(f.bytes.size(), 4096u + panels * panel + scales);
  EXPECT_EQ(f.get<uint64_t>(96), file_check(f.bytes.data() + 4096, f.bytes.size() - 4096));
  EXPECT_EQ(f.get<int64_t>(112), 1);
  FileImage sealed = f;
  sealed.seal();
  EXPECT_EQ(sealed.bytes, f.bytes);
  for (size_t at = 120; at < 4096; ++at) ASSERT_EQ(f.bytes[at], 0) << at;
}

// 19 columns are 2 panels, twice; 40 of K in 3 groups of 16, two lines each, that order makes 5.
TEST_F(PackedWeightsFile, FormatOfInt4IsTheDocumentedOne) {
  save(make_int4_weights(WeightLayout::kU4Vnni8N16GateUp, 19, 40,
                         {16, 5, DType::kBF16, Int4Zeros::kF32, true}));
  const FileImage& f = image_;
  EXPECT_EQ(f.get<uint32_t>(20), 0x0412u);
  EXPECT_EQ(f.get<uint32_t>(24), 6u);
  EXPECT_EQ(f.get<uint32_t>(28), 2u);
  EXPECT_EQ(f.get<int64_t>(48), 16);
  EXPECT_EQ(f.get<uint32_t>(56), 2u);
  EXPECT_EQ(f.get<uint32_t>(60), 1u);
  const int64_t panel = 5 * 2 * 64, panels = 4;
  const int64_t scales = panels * panel, zeros = scales + panels * 5 * 16 * 2;
  const int64_t order = zeros + panels * 5 * 16 * 4, end = order + 5 * 16 * 4;
  EXPECT_EQ(f.get<int64_t>(64), panel);
  EXPECT_EQ(f.get<int64_t>(72), scales);
  EXPECT_EQ(f.get<int64_t>(88), end);
  EXPECT_EQ(f.get<int64_t>(112), 1);
  EXPECT_EQ(f.get<int64_t>(120), 5);
  EXPECT_EQ(f.get<int64_t>(128), zeros);
  EXPECT_EQ(f.get<int64_t>(136), order);
  ASSERT_EQ(f.bytes.size(), 4096u + static_cast<size_t>(end));
  for (size_t at = 144; at < 4096; ++at) ASSERT_EQ(f.bytes[at], 0) << at;
}

// Worked out by a Python script from the text in ops/checksum.h.
TEST(LineChecksum, KnownValues) {
  std::byte bytes[192] = {};
  EXPECT_EQ(LineChecksum().value(), 0x808b12cfb42e124cu);
  LineChecksum zeros;
  zeros.add(bytes, 1);
  EXPECT_EQ(zeros.value(), 0x2cd130aab711a83cu);
  for (int i = 0; i < 192; ++i) bytes[i] = static_cast<std::byte>((i * 7 + 3) % 256);
  LineChecksum sum;
  sum.add(bytes, 1);
  sum.add(bytes + 64, 2);
  EXPECT_EQ(sum.value(), 0x3a0f667e5a5320fbu);
}

TEST_F(PackedWeightsFile, TruncatedAtEveryByte) {
  for (auto bytes = static_cast<int64_t>(image_.bytes.size()) - 1; bytes >= 0; --bytes) {
    ASSERT_EQ(truncate(path().c_str(), bytes), 0);
    const Status s = map().status();
    ASSERT_EQ(s.code(), StatusCode::kBadFile) << bytes << s.message();
    ASSERT_NE(s.message().find("w.qpw: "), std::string::npos) << s.message();
    ASSERT_NE(s.message().find(std::to_string(bytes)), std::string::npos) << s.message();
  }
}

TEST_F(PackedWeightsFile, ExtendedByAnything) {
  for (const size_t extra : {1, 63, 64, 4096, 1 << 20}) {
    FileImage image = image_;
    image.bytes.resize(image.bytes.size() + extra);
    const Status s = map(image);
    EXPECT_EQ(s.code(), StatusCode::kBadFile);
    EXPECT_NE(s.message().find("size of the file is " + std::to_string(image.bytes.size()) +
                               ", expected " + std::to_string(image_.bytes.size())),
              std::string::npos)
        << s.message();
  }
}

TEST_F(PackedWeightsFile, TenThousandFlipsInTheHeader) {
  const int fd = open(path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  Rng rng(7);
  for (int i = 0; i < 10000; ++i) {
    // Half of them among the fields, which are a fortieth of the page.
    const int64_t at = rng.in(0, rng.one_in(2) ? 143 : 4095);
    const char flipped = static_cast<char>(image_.bytes[static_cast<size_t>(at)] ^
                                           static_cast<char>(1 << rng.in(0, 7)));
    ASSERT_EQ(pwrite(fd, &flipped, 1, at), 1);
    const Status s = map().status();
    ASSERT_EQ(s.code(), StatusCode::kBadFile) << "byte " << at << ": " << s.message();
    ASSERT_EQ(pwrite(fd, &image_.bytes[static_cast<size_t>(at)], 1, at), 1);
  }
  close(fd);
  EXPECT_TRUE(map(/*verify=*/true).ok());
}

TEST_F(PackedWeightsFile, EveryFlipInThePayloadIsFoundOnRequest) {
  for (size_t at = kFilePage; at < image_.bytes.size(); ++at) {
    FileImage image = image_;
    image.bytes[at] = static_cast<char>(image.bytes[at] ^ (1 << at % 8));
    EXPECT_TRUE(map(image).ok()) << "the payload is not looked at without verify";
    const Status s = map(/*verify=*/true).status();
    EXPECT_EQ(s.code(), StatusCode::kBadFile);
    ASSERT_NE(s.message().find("w.qpw: payload_check is "), std::string::npos) << s.message();
  }
}

TEST_F(PackedWeightsFile, IdentityFields) {
  expect_refused<char>(0, 'Q', "magic is ");
  expect_refused<uint32_t>(8, 0x04030201,
                           "byte_order is 67305985, expected 16909060: written by a");
  expect_refused<uint32_t>(8, 0, "byte_order is 0, expected 16909060");
  for (const uint32_t version : {0u, 1u, 2u, 4u, 0xffffffffu}) {
    expect_refused<uint32_t>(12, version, "version is " + std::to_string(version) + ", expected 3");
  }
  FileImage image = image_;
  image.set<int64_t>(32, 2);  // a legal field, but not what was summed
  EXPECT_NE(map(image).message().find("w.qpw: header_check is "), std::string::npos);
}

TEST_F(PackedWeightsFile, FieldsOutOfRange) {
  for (const uint32_t layout : {0u, 1u, 0x0100u, 0x0103u, 0x0301u, 0x0413u, 0xffffffffu}) {
    expect_refused<uint32_t>(20, layout, "layout " + std::to_string(layout) + " is none");
  }
  const std::string limit = ", expected 0 to 281474976710656";
  for (const int64_t v : {int64_t{-1}, kMin, (int64_t{1} << 48) + 1, kMax}) {
    expect_refused<int64_t>(32, v, "n is " + std::to_string(v) + limit);
    expect_refused<int64_t>(40, v, "k is " + std::to_string(v) + limit);
    expect_refused<int64_t>(112, v, "batch is " + std::to_string(v) + limit);
  }
  FileImage image = image_;
  image.set<int64_t>(32, int64_t{1} << 48);
  image.set<int64_t>(40, int64_t{1} << 48);
  image.seal();
  EXPECT_NE(map(image).message().find("make more than 2^48 bytes"), std::string::npos);
}

TEST_F(PackedWeightsFile, FieldsThatFollowFromOthers) {
  expect_refused<uint32_t>(16, 4095, "header_bytes is 4095, expected 4096");
  expect_refused<uint32_t>(24, 1, "dtype is 1, expected 4");
  expect_refused<uint32_t>(28, 0, "scale_dtype is 0, expected 1");
  expect_refused<int64_t>(48, 128, "group is 128, expected 0");
  expect_refused<uint32_t>(56, 1, "zero_point is 1, expected 0");
  expect_refused<uint32_t>(60, 0x80000000u, "flags is 2147483648, expected 0");
  for (const int64_t v : {int64_t{0}, int64_t{-64}, kMin, kMax, int64_t{65}}) {
    const std::string got = std::to_string(v);
    expect_refused<int64_t>(64, v, "panel_bytes is " + got + ", expected 1024");
    expect_refused<int64_t>(72, v, "scale_offset is " + got + ", expected 1024");
    expect_refused<int64_t>(80, v, "payload_offset is " + got + ", expected 4096");
    expect_refused<int64_t>(88, v, "payload_bytes is " + got + ", expected 1088");
  }
  for (const size_t at : {144, 2000, 4095}) {
    expect_refused<char>(at, 1, "reserved bytes after the header's 144 bytes are not all zero");
  }
  expect_refused<int64_t>(120, 1, "groups is 1, expected 0");
  expect_refused<int64_t>(128, 64, "zero_offset is 64, expected 0");
  expect_refused<int64_t>(136, 64, "order_offset is 64, expected 0");
  // Another layout of the same size, and another shape: everything that follows is checked.
  expect_refused<uint32_t>(20, 0x0111, "dtype is 4, expected 1");
  expect_refused<uint32_t>(20, 0x0212, "scale_offset is 1024, expected 2048");
  expect_refused<int64_t>(32, 17, "scale_offset is 1024, expected 2048");
  expect_refused<int64_t>(40, 65, "panel_bytes is 1024, expected 2048");
  expect_refused<int64_t>(112, 2, "scale_offset is 1024, expected 2048");
}

// 40 of K in groups of 16: 3 of them, 2 lines each.
TEST_F(PackedWeightsFile, FieldsOfInt4) {
  const WeightGroups plain = {16, 0, DType::kF16, Int4Zeros::kInteger, false};
  WeightGroups ordered = plain;
  ordered.act_order = true;
  ordered.groups = 5;
  for (const WeightGroups& grouped : {plain, ordered}) {
    save(make_int4_weights(WeightLayout::kU4Vnni8N16, 17, 40, grouped));
    ASSERT_TRUE(map(/*verify=*/true).ok()) << map(true).status().message();
    expect_refused<int64_t>(40, (int64_t{1} << 20) + 1, "k is 1048577, expected 0 to 1048576");
    for (const int64_t v : {0, 2}) {
      expect_refused<int64_t>(112, v, "batch is " + std::to_string(v) + ", expected 1");
    }
    for (const int64_t v : {int64_t{0}, int64_t{-1}, int64_t{41}, kMin, kMax}) {
      expect_refused<int64_t>(48, v, "group is " + std::to_string(v) + ", which is none of 1 to k");
    }
    for (const uint32_t v : {0u, 4u, 5u, 0xffffffffu}) {
      expect_refused<uint32_t>(28, v, "scale_dtype is " + std::to_string(v) + ", expected 1 to 3");
    }
    for (const uint32_t v : {3u, 0xffffffffu}) {
      expect_refused<uint32_t>(56, v, "zero_point is " + std::to_string(v) + ", expected 0 to 2");
    }
    for (const uint32_t v : {2u, 3u, 0x80000001u}) {
      expect_refused<uint32_t>(60, v, "flags is " + std::to_string(v) + ", expected 0 to 1");
    }
    for (const int64_t v : {int64_t{2}, int64_t{41}, int64_t{-1}, kMin, kMax}) {
      expect_refused<int64_t>(120, v,
                              "groups is " + std::to_string(v) + ", which does not go with");
    }
    expect_refused<int64_t>(128, 0, "zero_offset is 0, expected ");
    expect_refused<int64_t>(136, 64, "order_offset is 64, expected ");
    // Another type of scales, other zeros: the sections behind move.
    expect_refused<uint32_t>(28, 1, "payload_bytes is ");
    expect_refused<uint32_t>(56, 0, "payload_bytes is ");
    expect_refused<uint32_t>(24, 4, "dtype is 4, expected 6");
  }
  expect_refused<uint32_t>(60, 0, "groups is 5, which does not go with k and a group of 16");
  save(make_int4_weights(WeightLayout::kU4Vnni8N16, 17, 40, plain));
  expect_refused<int64_t>(120, 4, "groups is 4, which does not go with");
  expect_refused<uint32_t>(60, 1, "payload_bytes is ");
}

// 40 of K in groups of 16: 3 of them, 4 lines each; f32 scales.
TEST_F(PackedWeightsFile, FieldsOfFp8) {
  for (const WeightLayout layout : {WeightLayout::kE4M3Vnni2N16, WeightLayout::kE5M2Vnni2N16}) {
    save(make_fp8_weights(layout, 17, 40, 16));
    ASSERT_TRUE(map(/*verify=*/true).ok()) << map(true).status().message();
    EXPECT_EQ(image_.get<int64_t>(64), 3 * 4 * 64);
    EXPECT_EQ(image_.get<uint32_t>(24), layout == WeightLayout::kE4M3Vnni2N16 ? 7u : 8u);
    expect_refused<int64_t>(40, (int64_t{1} << 20) + 1, "k is 1048577, expected 0 to 1048576");
    expect_refused<int64_t>(112, 2, "batch is 2, expected 1");
    for (const int64_t v : {int64_t{0}, int64_t{-1}, int64_t{41}, kMin, kMax}) {
      expect_refused<int64_t>(48, v, "group is " + std::to_string(v) + ", which is none of 1 to k");
    }
    for (const uint32_t v : {0u, 2u, 3u, 4u, 0xffffffffu}) {
      expect_refused<uint32_t>(28, v, "scale_dtype is " + std::to_string(v) + ", expected 1");
    }
    for (const uint32_t v : {1u, 2u, 0xffffffffu}) {
      expect_refused<uint32_t>(56, v, "zero_point is " + std::to_string(v) + ", expected 0");
      expect_refused<uint32_t>(60, v, "flags is " + std::to_string(v) + ", expected 0");
    }
    for (const int64_t v : {int64_t{2}, int64_t{4}, int64_t{-1}, kMin, kMax}) {
      expect_refused<int64_t>(120, v,
                              "groups is " + std::to_string(v) + ", which does not go with");
    }
    expect_refused<int64_t>(128, 64, "zero_offset is 64, expected 0");
    expect_refused<int64_t>(136, 64, "order_offset is 64, expected 0");
    expect_refused<uint32_t>(24, 4, "dtype is 4, expected ");
  }
}

// A is read at the columns that the file names: these are looked at without verify, each of them.
TEST_F(PackedWeightsFile, ColumnsOfInt4AreInRange) {
  constexpr int64_t kDepth = 2 * 129 * 16;
  save(make_int4_weights(WeightLayout::kU4Vnni8N16, 3, 129 * 16,
                         {16, 2 * 129, DType::kF16, Int4Zeros::kSymmetric, true}));
  ASSERT_TRUE(map().ok()) << map().status().message();
  const auto section = kFilePage + static_cast<size_t>(image_.get<int64_t>(136));
  for (const int32_t column : {-2, 129 * 16, std::numeric_limits<int32_t>::min()}) {
    for (const int64_t at : {int64_t{0}, int64_t{1023}, int64_t{1024}, kDepth - 1}) {
      FileImage image = image_;
      image.set<int32_t>(section + static_cast<size_t>(at) * 4, column);
      const Status s = map(image);
      EXPECT_EQ(s.code(), StatusCode::kBadFile);
      const std::string part = "w.qpw: order " + std::to_string(at) + " is " +
                               std::to_string(column) + ", which is no column";
      EXPECT_NE(s.message().find(part), std::string::npos) << s.message() << "\n" << part;
    }
  }
}

// Fields that look at one another: a header that is right in itself over too few bytes.
TEST_F(PackedWeightsFile, HonestHeaderOverTooFewBytes) {
  save(WeightLayout::kBf16Vnni2N16, 4096, 4096);
  ASSERT_EQ(truncate(path().c_str(), 4096 + 64), 0);
  const std::string message = map(/*verify=*/true).status().message();
  EXPECT_NE(message.find("size of the file is 4160, expected 33558528"), std::string::npos)
      << message;
}

TEST_F(PackedWeightsFile, NotARegularFile) {
  const auto refused = [](const std::string& file, StatusCode code, const std::string& text) {
    const Status s = PackedWeights::map(file).status();
    EXPECT_EQ(s.code(), code) << s.message();
    EXPECT_NE(s.message().find(text), std::string::npos) << s.message();
  };
  refused(dir_.path(), StatusCode::kBadFile, "is not a regular file");
  refused("/dev/null", StatusCode::kBadFile, "/dev/null: is not a regular file");
  ASSERT_EQ(mkfifo(dir_.file("fifo").c_str(), 0600), 0);
  refused(dir_.file("fifo"), StatusCode::kBadFile, "fifo: is not a regular file");
  refused(dir_.file("absent"), StatusCode::kIoError,
          "absent: cannot open: No such file or directory (errno 2)");
  refused(path() + "/w", StatusCode::kIoError, "Not a directory");
  write_file(dir_.file("empty"), "");
  refused(dir_.file("empty"), StatusCode::kBadFile, "empty: ends after 0 bytes, expected 4096");
  refused("", StatusCode::kInvalidArgument, "path is empty");
  refused(path() + std::string(1, '\0'), StatusCode::kInvalidArgument, "NUL");
  // A link is followed: whoever names a path may name it through one.
  ASSERT_EQ(symlink(path().c_str(), dir_.file("link").c_str()), 0);
  EXPECT_TRUE(PackedWeights::map(dir_.file("link")).ok());
}

}  // namespace
}  // namespace quern::test
