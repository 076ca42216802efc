#include "model_smoke/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "model_smoke/input_error.h"
#include "model_smoke/tensor_values.h"
#include "tests/model_smoke/test_model.h"

namespace quern::smoke {
namespace {

using test::safetensors_bytes;
using test::safetensors_raw;
using test::TempDir;
using test::TestTensor;

SafetensorsFile open_bytes(const TempDir& dir, std::string_view bytes) {
  dir.write("t.safetensors", bytes);
  return SafetensorsFile(FileMap::open_user_file(dir.file("t.safetensors")));
}

template <typename T>
std::string raw(std::initializer_list<T> values) {
  std::string s;
  for (const T v : values) s.append(reinterpret_cast<const char*>(&v), sizeof v);
  return s;
}

TEST(Safetensors, ReadsDtypesShapesAndBytes) {
  const TempDir dir;
  const SafetensorsFile f = open_bytes(
      dir, safetensors_bytes({{"f", "F32", {2, 1}, raw<float>({1.5f, -2.0f})},
                              {"b", "BF16", {3}, raw<uint16_t>({0x3f80, 0xc000, 0x0001})},
                              {"i", "I8", {2, 2}, raw<int8_t>({-128, -1, 0, 127})}}));
  ASSERT_EQ(f.tensors().size(), 3u);
  const TensorView* t = f.find("f");
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->dtype, FileDType::kF32);
  EXPECT_EQ(t->shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(t->bytes, 8u);
  EXPECT_EQ(to_f32(*t), (std::vector<float>{1.5f, -2.0f}));
  EXPECT_EQ(to_f32(*f.find("b")), (std::vector<float>{1.0f, -2.0f, std::ldexp(1.0f, -133)}));
  EXPECT_EQ(value_text(*f.find("i"), 0), "-128");
  EXPECT_EQ(f.find("g"), nullptr);
  EXPECT_EQ(f.find(""), nullptr);
}

TEST(Safetensors, NoTensorsIsValid) {
  const TempDir dir;
  const SafetensorsFile f =
      open_bytes(dir, safetensors_raw(R"({"__metadata__":{"format":"pt","a":""}})", ""));
  EXPECT_TRUE(f.tensors().empty());
  ASSERT_EQ(f.metadata().size(), 2u);
  EXPECT_EQ(f.metadata()[1].second, "pt");
  EXPECT_TRUE(open_bytes(dir, safetensors_raw("{}", "")).tensors().empty());
}

TEST(Safetensors, ScalarsAndEmptyTensorsAreValid) {
  const TempDir dir;
  const SafetensorsFile f =
      open_bytes(dir, safetensors_bytes({{"scalar", "F32", {}, raw<float>({3.0f})},
                                         {"none", "F32", {0, 7}, ""},
                                         {"none2", "BF16", {5, 0, 2}, ""},
                                         {"last", "U8", {1}, "x"}}));
  EXPECT_EQ(f.find("scalar")->elements(), 1);
  EXPECT_EQ(f.find("none")->elements(), 0);
  EXPECT_EQ(f.find("none2")->bytes, 0u);
  EXPECT_EQ(to_f32(*f.find("none")).size(), 0u);
  EXPECT_FALSE(is_constant(*f.find("none")));
  EXPECT_FALSE(is_constant(*f.find("scalar")));
}

TEST(Safetensors, OffsetsNeedNotFollowTheHeaderNorBeAligned) {
  const TempDir dir;
  const SafetensorsFile f = open_bytes(
      dir, safetensors_raw(R"({"late":{"dtype":"F32","shape":[1],"data_offsets":[1,5]},)"
                           R"("early":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}} )",
                           "x" + raw<float>({2.0f})));
  EXPECT_EQ(f.tensors()[0].name, "early");
  EXPECT_EQ(to_f32(*f.find("late")), std::vector<float>{2.0f});
}

TEST(Safetensors, SubByteTypesEndOnAByte) {
  const TempDir dir;
  const SafetensorsFile f =
      open_bytes(dir, safetensors_bytes({{"f4", "F4", {4}, "ab"}, {"f6", "F6_E2M3", {4}, "abc"}}));
  EXPECT_EQ(bits_of(f.find("f6")->dtype), 6);
  EXPECT_EQ(f.find("f4")->elements(), 4);
}

TEST(TensorValues, FindsEveryKindOfNonFinite) {
  const struct {
    const char* dtype;
    std::string bytes;
    int64_t count, bad;
  } rows[] = {
      {"F32", raw<uint32_t>({0x7f7fffff, 0x80000001, 0xff800000}), 3, 2},
      {"F32", raw<uint32_t>({0x7f800001, 0}), 2, 0},
      {"BF16", raw<uint16_t>({0x7f7f, 0x7f80}), 2, 1},
      {"F16", raw<uint16_t>({0x7bff, 0xfc00}), 2, 1},
      {"F64", raw<uint64_t>({0x7fefffffffffffff, 0xfff0000000000000}), 2, 1},
      {"F8_E4M3", raw<uint8_t>({0x7e, 0xff}), 2, 1},
      {"F8_E5M2", raw<uint8_t>({0x7b, 0x7c}), 2, 1},
      {"F8_E8M0", raw<uint8_t>({0xfe, 0xff}), 2, 1},
      {"F8_E4M3FNUZ", raw<uint8_t>({0x7f, 0x80}), 2, 1},
      {"C64", raw<uint32_t>({0, 0, 0, 0x7fc00000}), 2, 1},
      {"I8", raw<uint8_t>({0x7f, 0xff}), 2, -1},
      {"F32", raw<uint32_t>({0, 0x7f7fffff}), 2, -1},
  };
  for (const auto& r : rows) {
    const TempDir dir;
    const SafetensorsFile f =
        open_bytes(dir, safetensors_bytes({TestTensor{"t", r.dtype, {r.count}, r.bytes}}));
    EXPECT_EQ(first_non_finite(f.tensors()[0]), r.bad) << r.dtype;
  }
}

TEST(TensorValues, FindsTheBadElementBehindABlockBoundary) {
  for (const size_t at : {size_t{0}, size_t{4095}, size_t{4096}, size_t{8191}, size_t{9000}}) {
    std::string bytes(2 * 9001, '\0');
    bytes[2 * at + 1] = '\x7f';
    bytes[2 * at] = '\xc0';
    const TempDir dir;
    const SafetensorsFile f = open_bytes(dir, safetensors_bytes({{"t", "BF16", {9001}, bytes}}));
    EXPECT_EQ(first_non_finite(f.tensors()[0]), static_cast<int64_t>(at));
  }
}

TEST(TensorValues, HalfPrecisionIsExact) {
  const TempDir dir;
  const SafetensorsFile f = open_bytes(
      dir, safetensors_bytes(
               {{"t", "F16", {5}, raw<uint16_t>({0x3c00, 0x8001, 0x7bff, 0x03ff, 0xc248})}}));
  EXPECT_EQ(to_f32(f.tensors()[0]),
            (std::vector<float>{1.0f, -std::ldexp(1.0f, -24), 65504.0f,
                                1023.0f * std::ldexp(1.0f, -24), -3.140625f}));
}

TEST(TensorValues, ConstantTensors) {
  const TempDir dir;
  const SafetensorsFile f =
      open_bytes(dir, safetensors_bytes({{"zero", "BF16", {8}, std::string(16, '\0')},
                                         {"same", "F32", {2}, raw<float>({7.0f, 7.0f})},
                                         {"almost", "F32", {2}, raw<float>({7.0f, 7.5f})}}));
  EXPECT_TRUE(is_constant(*f.find("zero")));
  EXPECT_TRUE(is_constant(*f.find("same")));
  EXPECT_FALSE(is_constant(*f.find("almost")));
}

TEST(TensorValues, OtherDtypesAreNoFloats) {
  const TempDir dir;
  const SafetensorsFile f = open_bytes(dir, safetensors_bytes({{"t", "I8", {1}, "x"}}));
  EXPECT_THROW((void)to_f32(f.tensors()[0]), InputError);
}

}  // namespace
}  // namespace quern::smoke
