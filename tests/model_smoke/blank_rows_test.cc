// Bug log L03: a published file has the K rows of in_proj_qkv all zero. Tensors and rows that say
// nothing are told, whatever the format.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model_smoke/tensor_values.h"
#include "tests/model_smoke/float_model.h"
#include "tests/model_smoke/load_outcome.h"

namespace quern::smoke {
namespace {

using test::FloatFile;
using test::FloatMatrix;
using test::Int4File;
using test::outcome;
using test::TestModel;
using test::TestTensor;
using test::tiny_float_model;

const std::string kQkv = "model.layers.0.linear_attn.in_proj_qkv";
// The K rows of the tiny model: one head of 8 behind that of Q.
constexpr int64_t kFirst = 8, kLast = 15;

constexpr FloatFile kForms[] = {FloatFile::kFp8Block,      FloatFile::kFp8,
                                FloatFile::kCtFp8,         FloatFile::kModelOptFp8,
                                FloatFile::kModelOptNvfp4, FloatFile::kNestedNvfp4,
                                FloatFile::kBothNvfp4,     FloatFile::kCtNvfp4};

std::string said_of(const TestModel& m) {
  ::testing::internal::CaptureStderr();
  const std::string message = outcome(m);
  std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(message, "loaded");
  return said;
}

void expect_told(const TestModel& m, const std::string& tensor, int64_t rows,
                 const std::string& what) {
  const std::string said = said_of(m);
  const std::string text = tensor + ": " + std::to_string(kLast - kFirst + 1) + " of " +
                           std::to_string(rows) + " rows hold one value each: rows " +
                           std::to_string(kFirst) + " to " + std::to_string(kLast);
  EXPECT_NE(said.find(text), std::string::npos) << what << ": no \"" << text << "\" in: " << said;
}

/// Rows [kFirst, kLast] of a row-major tensor.
void fill_rows(TestModel& m, const std::string& tensor, char byte) {
  TestTensor& t = m.tensor(tensor);
  const size_t row = t.bytes.size() / static_cast<size_t>(t.shape[0]);
  t.bytes.replace(row * kFirst, row * (kLast - kFirst + 1), row * (kLast - kFirst + 1), byte);
}

int64_t rows_of_qkv() {
  return test::tiny_model().tensor(kQkv + ".weight").shape[0];
}

TEST(LoadingRules, L03_ZeroRowsOfPlainAndInt8Weights) {
  for (const char byte : {'\0', '\x3f'}) {  // bf16 0 and 0.746; codes 0 and 63
    TestModel plain = test::tiny_model(), int8 = test::tiny_int8_model();
    fill_rows(plain, kQkv + ".weight", byte);
    fill_rows(int8, kQkv + ".weight", byte);
    expect_told(plain, kQkv + ".weight", rows_of_qkv(), "plain");
    expect_told(int8, kQkv + ".weight", rows_of_qkv(), "int8");
  }
  TestModel scales = test::tiny_int8_model();
  fill_rows(scales, kQkv + ".weight_scale", '\0');
  expect_told(scales, kQkv + ".weight_scale", rows_of_qkv(), "scales");
}

TEST(LoadingRules, L03_ZeroRowsOfFloatFormats) {
  for (const FloatFile file : kForms) {
    const int64_t block = file == FloatFile::kFp8Block ? 8 : -1;
    const std::string codes = kQkv + (file == FloatFile::kCtNvfp4 ? ".weight_packed" : ".weight");
    for (const uint8_t code :
         {uint8_t{0}, uint8_t{8}, uint8_t{5}}) {  // e2m1 0, -0, 3; e4m3 0, a subnormal, another
      const auto bend = [&](const std::string& module, FloatMatrix& w) {
        if (module != kQkv) return;
        for (int64_t i = kFirst * w.k; i < (kLast + 1) * w.k; ++i) {
          w.code[static_cast<size_t>(i)] = code;
        }
      };
      expect_told(
          tiny_float_model({.file = file, .block_n = block, .block_k = block, .bend = bend}), codes,
          rows_of_qkv(), name_of(file));
    }
    if (!test::is_nvfp4(file)) continue;
    TestModel scales = tiny_float_model({.file = file});
    fill_rows(scales, kQkv + ".weight_scale", '\0');
    expect_told(scales, kQkv + ".weight_scale", rows_of_qkv(), name_of(file));
  }
}

/// A code of 8 is zero in symmetric files. Rows of the matrix are columns of the tensor for GPTQ,
/// and nibbles of words for AWQ.
TEST(LoadingRules, L03_ZeroRowsOfInt4) {
  for (const Int4File file :
       {Int4File::kGptq, Int4File::kGptqV2, Int4File::kAwq, Int4File::kCompressedTensors}) {
    const bool gptq = file == Int4File::kGptq || file == Int4File::kGptqV2;
    const bool by_row = file == Int4File::kCompressedTensors;
    TestModel m = test::tiny_int4_model({file, 8, true, false});
    const std::string name = kQkv + (by_row ? ".weight_packed" : ".qweight");
    TestTensor& codes = m.tensor(name);
    const int64_t width = codes.shape[1];
    for (int64_t word = 0; word < codes.shape[0] * width; ++word) {
      const int64_t n = by_row ? word / width : gptq ? word % width : word % width * 8;
      if (n < kFirst || n > kLast) continue;
      codes.bytes.replace(static_cast<size_t>(4 * word), 4, 4, '\x88');
    }
    expect_told(m, name + ": as a matrix [N, K]", rows_of_qkv(), name_of(file));

    TestModel zero = test::tiny_int4_model({file, 8, true, false});
    TestTensor& scales = zero.tensor(kQkv + (by_row ? ".weight_scale" : ".scales"));
    for (int64_t i = 0; i < scales.shape[0] * scales.shape[1]; ++i) {
      const int64_t n = by_row ? i / scales.shape[1] : i % scales.shape[1];
      if (n < kFirst || n > kLast) continue;
      scales.bytes.replace(static_cast<size_t>(2 * i), 2, 2, '\0');
    }
    expect_told(zero, name + ": as a matrix [N, K]", rows_of_qkv(), name_of(file));
  }
}

TEST(LoadingRules, L03_GoodFilesSayNothing) {
  std::vector<TestModel> good = {test::tiny_model(), test::tiny_int8_model()};
  for (const FloatFile file : kForms) {
    const int64_t block = file == FloatFile::kFp8Block ? 8 : -1;
    good.push_back(tiny_float_model({.file = file, .block_n = block, .block_k = block}));
  }
  for (const Int4File file :
       {Int4File::kGptq, Int4File::kGptqV2, Int4File::kAwq, Int4File::kCompressedTensors}) {
    good.push_back(test::tiny_int4_model({file, 8, true, false}));
  }
  for (const TestModel& m : good) {
    const std::string said = said_of(m);
    EXPECT_EQ(said.find("one value"), std::string::npos) << said;
    EXPECT_EQ(said.find(" values are "), std::string::npos) << said;
  }
}

TEST(BlankRows, AreToldOnce) {
  BlankRows rows;
  rows.add(4);
  EXPECT_EQ(blank_rows_text(rows, 9), "1 of 9 rows holds one value: row 4");
  rows.add(5);
  EXPECT_EQ(blank_rows_text(rows, 9), "2 of 9 rows hold one value each: rows 4 to 5");
  rows.add(8);
  EXPECT_EQ(blank_rows_text(rows, 9),
            "3 of 9 rows hold one value each: rows 4 to 8, not all of them");
  // A tensor of one value is told as a whole, not by its rows.
  TestModel m = test::tiny_model();
  TestTensor& t = m.tensor(kQkv + ".weight");
  t.bytes.assign(t.bytes.size(), '\0');
  const std::string said = said_of(m);
  EXPECT_NE(said.find(kQkv + ".weight: all "), std::string::npos) << said;
  EXPECT_EQ(said.find("one value"), std::string::npos) << said;
}

TEST(BlankRows, WhatIsARow) {
  const auto count = [](const std::string& dtype, std::vector<int64_t> shape,
                        const std::string& bytes, bool zeros_only) {
    const test::TempDir dir;
    dir.write("model.safetensors", test::safetensors_bytes({{"t", dtype, shape, bytes}}));
    const SafetensorsFile f(FileMap::open_user_file(dir.path() + "/model.safetensors"));
    return blank_rows(*f.find("t"), zeros_only).count;
  };
  const std::string ones(16, '\x11'), zeros(16, '\0'), minus(16, '\x80'), pairs(16, '\x12');
  EXPECT_EQ(count("I8", {2, 16}, ones + zeros, false), 2);
  EXPECT_EQ(count("I8", {2, 16}, ones + zeros, true), 1);
  EXPECT_EQ(count("I8", {2, 16}, minus + zeros, true), 1);  // -128
  EXPECT_EQ(count("F8_E4M3", {2, 16}, minus + zeros, true), 2);
  EXPECT_EQ(count("I8", {4, 8}, ones + zeros, false), 2);  // chance, and zeros
  EXPECT_EQ(count("U8", {2, 8}, ones, false), 2);          // 16 codes
  EXPECT_EQ(count("U8", {2, 8}, pairs, false), 0);
  EXPECT_EQ(count("U8", {1, 16}, std::string("\x80\x08", 2) + std::string(14, '\x88'), true), 1);
  EXPECT_EQ(count("I8", {2, 4, 4}, ones + zeros, false), 2);
  EXPECT_EQ(count("I8", {32}, zeros + zeros, false), 0);
  EXPECT_EQ(count("I8", {0, 16}, "", false), 0);
  EXPECT_EQ(count("I8", {16, 0}, "", false), 0);
  EXPECT_EQ(count("F32", {1, 4}, minus, false), 0);
  EXPECT_EQ(count("F32", {1, 1}, std::string("\0\0\0\x80", 4), true), 1);
  // Scales of rows, or one of all.
  EXPECT_EQ(count("F32", {8}, zeros + ones, true), 4);
  EXPECT_EQ(count("F32", {}, std::string(4, '\0'), true), 1);
  EXPECT_EQ(count("F32", {}, std::string(4, '\0'), false), 0);
}

}  // namespace
}  // namespace quern::smoke
