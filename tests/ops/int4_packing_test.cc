// Int4 checkpoints to packed weights: every byte, whatever the storage, the groups and the pool.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "ops/int4_order.h"
#include "tests/ops/int4_pack_case.h"
#include "tests/ops/test_pools.h"
#include "tests/support/property.h"
#include "tests/support/temp_dir.h"

namespace quern::test {
namespace {

constexpr Int4Storage kStorages[] = {Int4Storage::kGptq, Int4Storage::kAwq, Int4Storage::kRowMajor};

class Int4Packing : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ctx_.isa() < IsaLevel::kAvx512) GTEST_SKIP() << "not run: plans need AVX-512";
  }
  PackedWeights packed(Int4PackCase* c) {
    auto w = pack(ctx_, pool_, c);
    EXPECT_TRUE(w.ok()) << w.status().message();
    return w.ok() ? *w : PackedWeights();
  }
  Status failure(Int4PackCase* c) { return pack(ctx_, pool_, c).status(); }

  Context ctx_;
  SerialPool pool_;
};

Int4PackCase one(Int4PackSpec spec, Int4Storage storage, std::vector<int32_t> g_idx = {}) {
  Rng rng(static_cast<uint64_t>(spec.n * 1000 + spec.k));
  spec.act_order = !g_idx.empty();
  Int4PackCase c{spec, {}};
  c.parts.emplace_back(spec, storage, std::move(g_idx), &rng);
  return c;
}

// bug_log I14, I15: 16 words of eight nibbles go through all codes in every column.
TEST_F(Int4Packing, EveryCodeInEveryNibbleOfEveryColumn) {
  for (const Int4Storage storage : kStorages) {
    for (int64_t n = 1; n <= 49; ++n) {
      Int4PackCase c = one({n, 128, 32, Int4Zeros::kInteger}, storage);
      for (size_t i = 0; i < c.parts[0].codes.size(); ++i) {
        const size_t column = i / 128, k = i % 128;
        c.parts[0].codes[i] = static_cast<uint8_t>((k / 8 + 3 * k + 5 * column) % 16);
      }
      ASSERT_TRUE(is_packed(packed(&c), c));
    }
  }
}

// Zeros 0..16 in each nibble: stored 0..15, as v1 stores them one less. Bug_log L09, L11: neither
// is 0 turned into 1 nor 16 into 0.
TEST_F(Int4Packing, EveryZeroInEveryColumn) {
  for (const Int4Storage storage : kStorages) {
    for (const int32_t offset : {0, 1}) {
      Int4PackCase c = one({40, 16, 1, Int4Zeros::kInteger}, storage);
      c.parts[0].zero_offset = offset;
      for (size_t i = 0; i < c.parts[0].nibbles.size(); ++i) {
        c.parts[0].nibbles[i] = static_cast<uint8_t>((i / 16 + i) % 16);
      }
      const PackedWeights w = packed(&c);
      ASSERT_TRUE(is_packed(w, c));
      // Group 0 of column 0 and group 15 of column 0.
      const auto* zeros = static_cast<const uint8_t*>(w.group_zeros());
      EXPECT_EQ(zeros[0], offset);
      EXPECT_EQ(zeros[15 * 16], 15 + offset);
    }
  }
}

// Bug_log L10: codes and zeros of AWQ have one map of columns, so that q - z is zero everywhere.
TEST_F(Int4Packing, ZerosHaveTheCodesMapOfColumns) {
  for (const Int4Storage storage : kStorages) {
    Int4PackCase c = one({32, 8, 8, Int4Zeros::kInteger}, storage);
    for (size_t n = 0; n < 32; ++n) {
      const auto value = static_cast<uint8_t>(n % 16);
      for (size_t k = 0; k < 8; ++k) c.parts[0].codes[8 * n + k] = value;
      c.parts[0].nibbles[n] = value;
    }
    const PackedWeights w = packed(&c);
    const auto* zeros = static_cast<const uint8_t*>(w.group_zeros());
    for (int n = 0; n < 32; ++n) {
      uint32_t word;
      std::memcpy(&word, w.data() + 4 * n, 4);
      EXPECT_EQ(word, zeros[n] * 0x11111111u) << n;
      EXPECT_EQ(zeros[n], n % 16);
    }
  }
}

// Groups that divide K and that do not, on lines and off them; N with and without a rest.
TEST_F(Int4Packing, EveryGroupSize) {
  for (const Int4Storage storage : kStorages) {
    for (const int64_t group : {16, 24, 32, 48, 64, 72, 100, 128, -1}) {
      for (const int64_t k : {1, 7, 8, 15, 64, 100, 131, 256, 400}) {
        for (const int64_t n : {16, 21}) {
          Int4PackCase c = one({n, k, group, Int4Zeros::kInteger, DType::kBF16}, storage);
          ASSERT_TRUE(is_packed(packed(&c), c));
        }
      }
    }
  }
}

TEST_F(Int4Packing, NothingToPack) {
  for (const Int4Storage storage : kStorages) {
    for (const auto& [n, k] : {std::pair{0, 64}, {40, 0}, {0, 0}}) {
      for (const Int4Zeros zeros : {Int4Zeros::kSymmetric, Int4Zeros::kInteger, Int4Zeros::kF32}) {
        Int4PackCase c = one({n, k, 32, zeros}, storage);
        const PackedWeights w = packed(&c);
        EXPECT_EQ(w.bytes(), 0u);
        EXPECT_EQ(w.groups(), (k + 31) / 32);
        EXPECT_FALSE(w.empty());
      }
    }
  }
}

// Bug_log L12, its case: K 64 in groups of 32, columns alternate.
TEST_F(Int4Packing, OrderThatAlternates) {
  for (const Int4Storage storage : kStorages) {
    std::vector<int32_t> g_idx;
    for (int32_t k = 0; k < 64; ++k) g_idx.push_back(k % 2);
    Int4PackCase c = one({17, 64, 32}, storage, g_idx);
    const PackedWeights w = packed(&c);
    ASSERT_TRUE(is_packed(w, c));
    ASSERT_EQ(w.groups(), 2);
    for (int i = 0; i < 32; ++i) {
      EXPECT_EQ(w.order()[i], 2 * i);
      EXPECT_EQ(w.order()[32 + i], 2 * i + 1);
    }
  }
}

// 5, 0, 1 and 6 columns of the stored groups 0 to 3 in groups of 4.
TEST(Int4Order, CutsGroupsThatAreTooLongAndSkipsEmptyOnes) {
  const int32_t g_idx[12] = {3, 0, 3, 0, 3, 2, 0, 3, 0, 3, 0, 3};
  const Int4Order order = int4_order(12, 4, vector_view(g_idx, 12));
  EXPECT_EQ(order.layout.groups, 5);
  EXPECT_EQ(order.stored, (std::vector<int32_t>{0, 0, 2, 3, 3}));
  const std::vector<int32_t> want = {1,  3,  6,  8,  -1, -1, -1, -1,   // group 0
                                     10, -1, -1, -1, -1, -1, -1, -1,   // its rest
                                     5,  -1, -1, -1, -1, -1, -1, -1,   // group 2
                                     0,  2,  4,  7,  -1, -1, -1, -1,   // group 3
                                     9,  11, -1, -1, -1, -1, -1, -1};  // its rest
  EXPECT_EQ(order.depths, want);
}

// Words are kept as long runs wherever that is possible: what decides the speed.
TEST(Int4Order, RunsOfWords) {
  const auto text = [](int64_t k, int64_t group) {
    std::string s;
    for (const Int4Lines& lines : int4_order(k, group).by_words) {
      s += (lines.words ? 'w' : 'd') + std::to_string(lines.first) + '+' +
           std::to_string(lines.count) + (lines.words ? '@' + std::to_string(lines.word) : "") +
           ' ';
    }
    return s;
  };
  EXPECT_EQ(text(4096, 128), "w0+512@0 ");
  EXPECT_EQ(text(4096, -1), "w0+512@0 ");
  EXPECT_EQ(text(100, 24), "w0+12@0 d12+3 ");              // the last group has 4 columns
  EXPECT_EQ(text(100, -1), "w0+12@0 d12+2 ");              // tiles of 56
  EXPECT_EQ(text(144, 72), "w0+9@0 d9+1 w10+9@9 d19+1 ");  // tiles of 40
  EXPECT_EQ(text(100, 20), "d0+15 ");
  EXPECT_EQ(text(0, 32), "");
}

class Int4PackingProperty : public Int4Packing, public ::testing::WithParamInterface<int> {};

TEST_P(Int4PackingProperty, EveryByteIsTheDocumentedOne) {
  const auto check = [this](uint64_t seed) -> ::testing::AssertionResult {
    Int4PackCase c = random_int4_case(seed);
    const auto w = pack(ctx_, pool_, &c);
    if (!w.ok()) return ::testing::AssertionFailure() << w.status().message() << ' ' << c.text();
    return is_packed(*w, c);
  };
  run_property("int4 packing", GetParam(), check, 0.5);
}

TEST_P(Int4PackingProperty, AnyPoolGivesTheBytesOfOneThread) {
  const auto check = [this](uint64_t seed) -> ::testing::AssertionResult {
    Int4PackCase c = random_int4_case(seed);
    Rng rng(seed);
    ScriptedPool many(static_cast<int>(rng.in(2, 16)), ScriptedPool::Order::kRandom, seed);
    const auto w = pack(ctx_, many, &c);
    if (!w.ok()) return ::testing::AssertionFailure() << w.status().message() << ' ' << c.text();
    if (bytes_of(*w) == bytes_of(packed(&c))) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << many.size() << " threads, " << c.text();
  };
  run_property("int4 packing threads", GetParam(), check, 0.2);
}

INSTANTIATE_TEST_SUITE_P(Shards, Int4PackingProperty, ::testing::Range(0, kPropertyShards));

TEST_F(Int4Packing, RealThreadsGiveTheBytesOfOne) {
  for (const Int4Storage storage : kStorages) {
    Int4PackCase c = one({1000, 256, 64, Int4Zeros::kInteger}, storage);
    const std::vector<uint8_t> want = bytes_of(packed(&c));
    for (const int threads : {2, 3, 16}) {
      auto pool = PersistentPool::create(threads);
      ASSERT_TRUE(pool.ok());
      const auto w = pack(ctx_, **pool, &c);
      ASSERT_TRUE(w.ok());
      EXPECT_EQ(bytes_of(*w), want) << threads;
    }
  }
}

TEST_F(Int4Packing, SavedAndMapped) {
  const TempDir dir;
  for (const bool act_order : {false, true}) {
    std::vector<int32_t> g_idx;
    for (int32_t k = 0; act_order && k < 200; ++k) g_idx.push_back(k * 7 % 5);
    Int4PackCase c = one({50, 200, 48, Int4Zeros::kF32, DType::kF32}, Int4Storage::kAwq, g_idx);
    ASSERT_TRUE(packed(&c).save(dir.file("w")).ok());
    MapWeightsOptions options;
    options.verify = true;
    const auto w = PackedWeights::map(dir.file("w"), options);
    ASSERT_TRUE(w.ok()) << w.status().message();
    EXPECT_TRUE(is_packed(*w, c));
  }
}

TEST_F(Int4Packing, ProgressGoesUpToTheEnd) {
  struct Reports {
    std::vector<int64_t> done;
    int64_t total = 0;
  };
  const auto note = [](void* user, int64_t done, int64_t total) {
    auto& reports = *static_cast<Reports*>(user);
    reports.done.push_back(done);
    reports.total = total;
  };
  for (const int threads : {1, 3, 16}) {
    for (const int64_t n : {0, 5, 1000, 80000}) {
      Int4PackCase c = one({n, 8, 8}, Int4Storage::kGptq);
      Reports reports;
      ScriptedPool pool(threads);
      const auto w = pack(ctx_, pool, &c, {note, &reports});
      ASSERT_TRUE(w.ok());
      const std::vector<int64_t>& done = reports.done;
      ASSERT_FALSE(done.empty());
      EXPECT_LE(done.size(), 100u);
      EXPECT_EQ(reports.total, (n + 15) / 16);
      EXPECT_EQ(done.back(), reports.total);
      for (size_t i = 1; i < done.size(); ++i) EXPECT_LT(done[i - 1], done[i]);
      if (n == 80000 && threads == 1) {
        EXPECT_GE(done.size(), 90u);
      }
    }
  }
}

// ---- What is refused, and in which words

class Int4PackingErrors : public Int4Packing {
 protected:
  /// `spoil` changes one thing of weights that are right.
  template <typename Spoil>
  std::string message(const Int4PackSpec& spec, Int4Storage storage, const Spoil& spoil,
                      WeightPart part = WeightPart::kOnly) {
    std::vector<int32_t> g_idx;
    for (int64_t k = 0; spec.act_order && k < spec.k; ++k) {
      g_idx.push_back(static_cast<int32_t>(k / spec.group));
    }
    Int4PackCase c = one(spec, storage, g_idx);
    Int4Weights w = c.parts[0].store();
    EXPECT_TRUE(check_int4_weights(w, spec, part).ok());
    spoil(&w);
    const Status s = check_int4_weights(w, spec, part);
    EXPECT_EQ(s.code(), StatusCode::kInvalidArgument) << s.message();
    return s.message();
  }
};

constexpr Int4PackSpec kPlain = {20, 40, 16, Int4Zeros::kInteger};

TEST_F(Int4PackingErrors, Shapes) {
  const auto wrong = [&](Int4Storage storage, auto spoil) {
    return message(kPlain, storage, spoil);
  };
  using W = Int4Weights;
  EXPECT_EQ(wrong(Int4Storage::kGptq, [](W* w) { w->codes.rows = 40; }),
            "invalid argument: w.codes.rows (40) must be 5");
  EXPECT_EQ(wrong(Int4Storage::kGptq, [](W* w) { w->codes.cols = 3; }),
            "invalid argument: w.codes.cols (3) must be 20");
  EXPECT_EQ(wrong(Int4Storage::kAwq, [](W* w) { w->codes.rows = 5; }),
            "invalid argument: w.codes.rows (5) must be 40");
  EXPECT_EQ(wrong(Int4Storage::kRowMajor, [](W* w) { w->codes.cols = 6; }),
            "invalid argument: w.codes.cols (6) must be 5");
  EXPECT_EQ(wrong(Int4Storage::kAwq, [](W* w) { w->codes.data = nullptr; }),
            "invalid argument: w.codes.data is null");
  EXPECT_EQ(wrong(Int4Storage::kAwq, [](W* w) { w->codes.row_stride = 2; }),
            "invalid argument: w.codes.row_stride (2) must be at least w.codes.cols (3)");
  EXPECT_EQ(wrong(Int4Storage::kAwq, [](W* w) { w->codes.dtype = DType::kU8; }),
            "invalid argument: w.codes.dtype (u8) must be s32");
  // Bug_log I10: a scale without rows; I09: one the other way round.
  EXPECT_EQ(wrong(Int4Storage::kGptq, [](W* w) { w->scale.rows = 0; }),
            "invalid argument: w.scale.rows (0) must be 3");
  EXPECT_EQ(wrong(Int4Storage::kRowMajor,
                  [](W* w) {
                    w->scale.rows = 3;
                    w->scale.cols = 20;
                  }),
            "invalid argument: w.scale.rows (3) must be 20");
  EXPECT_EQ(wrong(Int4Storage::kGptq, [](W* w) { w->scale.dtype = DType::kBF16; }),
            "invalid argument: w.scale.dtype (bf16) must be f16");
  EXPECT_EQ(wrong(Int4Storage::kGptq, [](W* w) { w->zero.cols = 20; }),
            "invalid argument: w.zero.cols (20) must be 3");
  EXPECT_EQ(wrong(Int4Storage::kRowMajor, [](W* w) { w->zero.rows = 20; }),
            "invalid argument: w.zero.rows (20) must be 3");
  EXPECT_EQ(wrong(Int4Storage::kGptq, [](W* w) { w->zero = {}; }),
            "invalid argument: w.zero.dtype (f32) must be s32");
  EXPECT_EQ(wrong(Int4Storage::kGptq, [](W* w) { w->zero_offset = 2; }),
            "invalid argument: w.zero_offset (2) must be 0 or 1");
  EXPECT_EQ(wrong(Int4Storage::kGptq, [](W* w) { w->storage = static_cast<Int4Storage>(3); }),
            "invalid argument: w.storage (3) must be kGptq (0), kAwq (1) or kRowMajor (2)");
}

TEST_F(Int4PackingErrors, WhatMustNotBeThere) {
  static const int32_t word = 0;
  Int4PackSpec spec = kPlain;
  spec.zeros = Int4Zeros::kSymmetric;
  EXPECT_EQ(message(spec, Int4Storage::kGptq, [](Int4Weights* w) { w->zero.data = &word; }),
            "invalid argument: w.zero given, but the plan's Desc does not ask for it");
  EXPECT_EQ(
      message(
          spec, Int4Storage::kGptq, [](Int4Weights* w) { w->g_idx.data = &word; }, WeightPart::kUp),
      "invalid argument: up.g_idx given, but the plan's Desc does not ask for it");
  spec.zeros = Int4Zeros::kF32;
  EXPECT_EQ(
      message(
          spec, Int4Storage::kGptq, [](Int4Weights* w) { w->zero.cols = 3; }, WeightPart::kGate),
      "invalid argument: gate.zero.cols (3) must be 20");
}

// Bug_log L12: a group that has no scales, before and behind those that have.
TEST_F(Int4PackingErrors, GroupsThatDoNotExist) {
  Int4PackSpec spec = kPlain;
  spec.act_order = true;
  for (const int32_t g : {-1, 3, 1 << 30}) {
    for (const int64_t at : {0, 39}) {
      std::vector<int32_t> index(40, 1);
      index[static_cast<size_t>(at)] = g;
      const std::string text = message(spec, Int4Storage::kAwq, [&](Int4Weights* w) {
        w->g_idx = vector_view(index.data(), 40);
      });
      EXPECT_EQ(text, "invalid argument: w.g_idx[" + std::to_string(at) + "] is " +
                          std::to_string(g) + ", which is no group that has scales");
    }
  }
  EXPECT_EQ(message(spec, Int4Storage::kGptq, [](Int4Weights* w) { w->g_idx = {}; }),
            "invalid argument: w.g_idx.dtype (f32) must be s32");
  EXPECT_EQ(message(spec, Int4Storage::kGptq, [](Int4Weights* w) { w->g_idx.size = 39; }),
            "invalid argument: w.g_idx.size (39) must be 40");
}

TEST_F(Int4PackingErrors, GateAndUpInDifferentOrders) {
  std::vector<int32_t> g_idx(40, 0);
  Int4PackCase c = one({20, 40, 16}, Int4Storage::kGptq, g_idx);
  g_idx[17] = 1;
  c.parts.push_back(std::move(one({20, 40, 16}, Int4Storage::kGptq, g_idx).parts[0]));
  EXPECT_EQ(failure(&c).message(),
            "invalid argument: gate.g_idx and up.g_idx must be equal, as both multiply the same "
            "activations; at 17 they are not");
}

}  // namespace
}  // namespace quern::test
