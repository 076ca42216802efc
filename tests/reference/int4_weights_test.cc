#include "reference/int4_weights.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "reference/numeric.h"
#include "tests/support/int4_words.h"

namespace quern::reference {
namespace {

using test::int4_code_words;
using test::int4_zero_words;
using test::Int4Words;

constexpr Int4Storage kStorages[] = {Int4Storage::kGptq, Int4Storage::kAwq, Int4Storage::kRowMajor};

int32_t word(uint32_t bits) {
  return static_cast<int32_t>(bits);
}

Int4GemmDesc desc_of(int64_t n, int64_t k, int64_t group) {
  Int4GemmDesc d;
  d.n = n;
  d.k = k;
  d.group = group;
  d.scale = DType::kF32;
  return d;
}

/// Codes, zeros and scales as a test thinks of them, and their storage.
struct Stored {
  Int4GemmDesc desc;
  Int4Weights w;
  Int4Words codes, zeros;
  std::vector<float> scale;
  std::vector<int32_t> g_idx;

  Stored(Int4Storage storage, const Int4GemmDesc& d, const std::vector<uint8_t>& code,
         const std::vector<uint8_t>& zero, int64_t groups)
      : desc(d), scale(static_cast<size_t>(d.n * groups), 1.0f) {
    w.storage = storage;
    codes = int4_code_words(storage, code, d.n, d.k, 5);
    w.codes = codes.view();
    const bool by_column = storage == Int4Storage::kRowMajor;
    w.scale = matrix_view(scale.data(), by_column ? d.n : groups, by_column ? groups : d.n);
    if (!zero.empty()) {
      desc.zeros = Int4Zeros::kInteger;
      zeros = int4_zero_words(storage, zero, d.n, groups, 3);
      w.zero = zeros.view();
    }
  }
  Int4Values values() const {
    EXPECT_TRUE(check_int4_weights(w, desc).ok());
    return int4_values(w, desc);
  }
};

TEST(Int4WeightsReference, TheThreeStoragesByHand) {
  // Column n of C, depth k: the code is (n + k) mod 16, zeros are 3 + n, scales 1 + n.
  const std::vector<float> scale = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<int32_t> gptq = {word(0x76543210), word(0x87654321), word(0x98765432),
                                     word(0xa9876543), word(0xba987654), word(0xcba98765),
                                     word(0xdcba9876), word(0xedcba987)};
  // The same numbers stand in AWQ's rows of words, one a depth, with columns 0, 2, 4, 6, 1, 3,
  // 5, 7.
  const std::vector<int32_t> awq = {word(0x75316420), word(0x86427531), word(0x97538642),
                                    word(0xa8649753), word(0xb975a864), word(0xca86b975),
                                    word(0xdb97ca86), word(0xeca8db97)};
  const std::vector<int32_t> zeros_in_order = {word(0xa9876543)};
  const std::vector<int32_t> zeros_awq = {word(0xa8649753)};

  Int4GemmDesc desc = desc_of(8, 8, -1);
  desc.zeros = Int4Zeros::kInteger;
  Int4Weights w[3];
  w[0] = {Int4Storage::kGptq, matrix_view(gptq.data(), 1, 8), matrix_view(scale.data(), 1, 8),
          matrix_view(zeros_in_order.data(), 1, 1)};
  w[1] = {Int4Storage::kAwq, matrix_view(awq.data(), 8, 1), matrix_view(scale.data(), 1, 8),
          matrix_view(zeros_awq.data(), 1, 1)};
  w[2] = {Int4Storage::kRowMajor, matrix_view(gptq.data(), 8, 1), matrix_view(scale.data(), 8, 1),
          matrix_view(zeros_in_order.data(), 1, 1)};
  for (const Int4Weights& one : w) {
    ASSERT_TRUE(check_int4_weights(one, desc).ok());
    const Int4Values v = int4_values(one, desc);
    for (int64_t n = 0; n < 8; ++n) {
      EXPECT_EQ(v.zero_at(n, 0), static_cast<float>(3 + n));
      EXPECT_EQ(v.scale_at(n, 0), static_cast<float>(1 + n));
      for (int64_t k = 0; k < 8; ++k) {
        EXPECT_EQ(v.code[static_cast<size_t>(8 * n + k)], (n + k) % 16) << n << " " << k;
        EXPECT_EQ(v.weight(n, k), static_cast<float>(((n + k) % 16 - 3 - n) * (1 + n)));
      }
    }
  }
}

TEST(Int4WeightsReference, SixteenCodesInEightNibblesOfEveryStorage) {  // bug_log I14, K8
  for (const Int4Storage storage : kStorages) {
    for (int64_t n = 1; n <= 17; ++n) {
      for (int64_t k = 1; k <= 17; ++k) {
        std::vector<uint8_t> code;
        for (int64_t i = 0; i < n * k; ++i) {
          code.push_back(static_cast<uint8_t>((i * 7 + i / 16) % 16));
        }
        EXPECT_EQ(Stored(storage, desc_of(n, k, -1), code, {}, 1).values().code, code)
            << n << " " << k;
      }
    }
  }
}

TEST(Int4WeightsReference, BothGptqVersionsHoldTheSameZeros) {  // bug_log T03, L08
  const Int4GemmDesc desc = desc_of(8, 128, 128);
  const std::vector<uint8_t> eights(8 * 128, 8);
  const auto weights = [&](uint8_t stored, int32_t offset) {
    Stored s(Int4Storage::kGptq, desc, eights, std::vector<uint8_t>(8, stored), 1);
    s.w.zero_offset = offset;
    const Int4Values v = s.values();
    std::vector<float> all;
    for (int64_t n = 0; n < 8; ++n) {
      for (int64_t k = 0; k < 128; ++k) all.push_back(v.weight(n, k));
    }
    return all;
  };
  EXPECT_EQ(weights(7, 1), std::vector<float>(8 * 128, 0.0f));  // v1
  EXPECT_EQ(weights(8, 0), std::vector<float>(8 * 128, 0.0f));  // v2
  // A stored 8 is what the caller says it is: who reads files decides, and must check (v1: -1).
  EXPECT_EQ(weights(8, 1), std::vector<float>(8 * 128, -1.0f));
}

TEST(Int4WeightsReference, ZerosReachFromNothingToSixteen) {  // bug_log L09, L11, T03
  const std::vector<uint8_t> code = {0, 15, 3, 8, 1, 2, 4, 7};
  for (const Int4Storage storage : kStorages) {
    Stored s(storage, desc_of(8, 1, -1), code, {0, 1, 2, 3, 4, 5, 6, 15}, 1);
    EXPECT_EQ(s.values().zero_at(0, 0), 0.0f);
    EXPECT_EQ(s.values().zero_at(7, 0), 15.0f);
    s.w.zero_offset = 1;
    EXPECT_EQ(s.values().zero_at(0, 0), 1.0f);
    EXPECT_EQ(s.values().zero_at(7, 0), 16.0f);  // no wrap to 0
    EXPECT_EQ(s.values().weight(7, 0), -9.0f);
  }
}

TEST(Int4WeightsReference, ZerosHaveTheColumnMapOfTheCodes) {  // bug_log L10
  for (const Int4Storage storage : kStorages) {
    std::vector<uint8_t> code, zero;
    for (int64_t n = 0; n < 37; ++n) {
      zero.push_back(static_cast<uint8_t>(n % 16));
      for (int64_t k = 0; k < 9; ++k) code.push_back(static_cast<uint8_t>(n % 16));
    }
    const Int4Values v = Stored(storage, desc_of(37, 9, -1), code, zero, 1).values();
    for (int64_t n = 0; n < 37; ++n) {
      for (int64_t k = 0; k < 9; ++k) EXPECT_EQ(v.weight(n, k), 0.0f) << n;
    }
  }
}

TEST(Int4WeightsReference, SymmetricIgnoresStoredZeros) {  // bug_log L07
  Stored s(Int4Storage::kGptq, desc_of(1, 1, 1), {11}, {2}, 1);
  s.desc.zeros = Int4Zeros::kSymmetric;
  EXPECT_EQ(s.values().weight(0, 0), 3.0f);
}

TEST(Int4WeightsReference, FloatZerosHaveTheShapeOfTheScales) {
  const std::vector<float> zero = {7.25f, -1, 0, 100, 8.5f, 3};
  for (const Int4Storage storage : kStorages) {
    Stored s(storage, desc_of(3, 2, 1), {0, 1, 2, 3, 4, 5}, {}, 2);
    s.desc.zeros = Int4Zeros::kF32;
    const bool by_column = storage == Int4Storage::kRowMajor;
    s.w.zero = by_column ? matrix_view(zero.data(), 3, 2) : matrix_view(zero.data(), 2, 3);
    const Int4Values v = s.values();
    EXPECT_EQ(v.zero_at(0, 1), by_column ? -1.0f : 100.0f);
    EXPECT_EQ(v.zero_at(2, 0), by_column ? 8.5f : 0.0f);
  }
}

TEST(Int4WeightsReference, TheLastGroupMayBeShorter) {
  const std::vector<uint8_t> code(7, 9);
  Stored s(Int4Storage::kGptq, desc_of(1, 7, 3), code, {}, 3);
  s.scale = {1, 2, 4};
  const Int4Values v = s.values();
  EXPECT_EQ(v.groups, 3);
  EXPECT_EQ(v.weight(0, 2), 1.0f);
  EXPECT_EQ(v.weight(0, 3), 2.0f);
  EXPECT_EQ(v.weight(0, 6), 4.0f);
  const std::vector<Int4Run> runs = int4_runs(v, s.desc);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[1].columns, (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(runs[2].columns, (std::vector<int64_t>{6}));
}

TEST(Int4WeightsReference, GroupIndicesAreHonoured) {  // bug_log L12
  std::vector<uint8_t> code(64, 9);
  Stored s(Int4Storage::kGptq, desc_of(1, 64, 32), code, {}, 2);
  s.scale = {1, 2};
  s.desc.act_order = true;
  for (int32_t k = 0; k < 64; ++k) s.g_idx.push_back(k % 2);
  s.w.g_idx = vector_view(s.g_idx.data(), 64);
  const Int4Values v = s.values();
  for (int64_t k = 0; k < 64; ++k) EXPECT_EQ(v.weight(0, k), k % 2 ? 2.0f : 1.0f);
  const std::vector<Int4Run> runs = int4_runs(v, s.desc);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].columns.size(), 32u);
  EXPECT_EQ(runs[0].columns[31], 62);
  EXPECT_EQ(runs[1].columns[0], 1);
  for (const int32_t out_of_range : {-1, 2}) {
    s.g_idx[17] = out_of_range;
    EXPECT_EQ(check_int4_weights(s.w, s.desc).code(), StatusCode::kInvalidArgument);
  }
}

TEST(Int4WeightsReference, GroupsOfManyColumnsAreCutAndEmptyOnesTakeNothing) {
  std::vector<uint8_t> code(6, 0);
  Stored s(Int4Storage::kGptq, desc_of(1, 6, 2), code, {}, 3);
  s.desc.act_order = true;
  s.g_idx = {2, 0, 2, 2, 2, 2};
  s.w.g_idx = vector_view(s.g_idx.data(), 6);
  const std::vector<Int4Run> runs = int4_runs(s.values(), s.desc);
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_EQ(runs[0].group, 0);
  EXPECT_EQ(runs[0].columns, (std::vector<int64_t>{1}));
  EXPECT_EQ(runs[1].columns, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(runs[2].columns, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(runs[3].group, 2);
  EXPECT_EQ(runs[3].columns, (std::vector<int64_t>{5}));
}

TEST(Int4WeightsReference, ScalesKeepTheirType) {
  const std::vector<uint16_t> f16 = {0x0001, 0x7bff};   // 2^-24, 65504
  const std::vector<uint16_t> bf16 = {0x0001, 0x7f7f};  // 2^-133, the largest
  Stored s(Int4Storage::kGptq, desc_of(1, 2, 1), {9, 9}, {}, 2);
  s.desc.scale = DType::kF16;
  s.w.scale = {f16.data(), DType::kF16, 2, 1, 1};
  EXPECT_EQ(s.values().weight(0, 0), 0x1p-24f);
  EXPECT_EQ(s.values().weight(0, 1), 65504.0f);
  s.desc.scale = DType::kBF16;
  s.w.scale = {bf16.data(), DType::kBF16, 2, 1, 1};
  EXPECT_EQ(s.values().weight(0, 0), 0x1p-133f);
  EXPECT_EQ(s.values().weight(0, 1), 0x1.fep127f);
}

TEST(Int4WeightsReference, EveryShapeIsChecked) {  // bug_log I09, I10
  for (const Int4Storage storage : kStorages) {
    const Stored good(storage, desc_of(17, 64, 32), std::vector<uint8_t>(17 * 64, 1),
                      std::vector<uint8_t>(17 * 2, 1), 2);
    ASSERT_TRUE(check_int4_weights(good.w, good.desc).ok());
    const auto refused = [&](auto change) {
      Stored s = good;
      change(s.w, s.desc);
      return check_int4_weights(s.w, s.desc).code() == StatusCode::kInvalidArgument;
    };
    EXPECT_TRUE(refused([](Int4Weights& w, auto&) { w.scale.rows = 0; }));
    EXPECT_TRUE(refused([](Int4Weights& w, auto&) { std::swap(w.scale.rows, w.scale.cols); }));
    EXPECT_TRUE(refused([](Int4Weights& w, auto&) { std::swap(w.zero.rows, w.zero.cols); }));
    EXPECT_TRUE(refused([](Int4Weights& w, auto&) { w.codes.cols -= 1; }));
    EXPECT_TRUE(refused([](Int4Weights& w, auto&) { w.codes.dtype = DType::kF32; }));
    EXPECT_TRUE(refused([](Int4Weights& w, auto&) { w.zero.dtype = DType::kF32; }));
    EXPECT_TRUE(refused([](Int4Weights& w, auto&) { w.scale.dtype = DType::kF16; }));
    EXPECT_TRUE(refused([](auto&, Int4GemmDesc& d) { d.group = 0; }));
    EXPECT_TRUE(refused([](auto&, Int4GemmDesc& d) { d.group = 16; }));
    EXPECT_TRUE(refused([](auto&, Int4GemmDesc& d) { d.act_order = true; }));  // no g_idx
  }
}

}  // namespace
}  // namespace quern::reference
