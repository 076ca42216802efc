// What is special about int4 weights: storages, codes in every place, groups, zeros, activation
// order. Everything that is said of every GEMM is said of int4_gemm in gemm_*_test.cc.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>

#include "reference/int4_weights.h"
#include "tests/ops/gemm_fixture.h"

namespace quern::test {
namespace {

using Int4Test = GemmTest;

auto every_int4() {
  return ::testing::Combine(::testing::ValuesIn(isas_to_test()), ::testing::ValuesIn(kInt4Kinds));
}

std::vector<std::byte> bytes_of(const PackedWeights& w) {
  return std::vector<std::byte>(w.data(), w.data() + w.bytes());
}

/// The kind's plan for `c`, with `w` packed.
GemmOp packed_op(const Context& ctx, const GemmCase& c, const Int4Weights& w) {
  Result<GemmOp> op = GemmOp::create(ctx, c);
  EXPECT_TRUE(op.ok()) << op.status().message();
  if (!op.ok()) return GemmOp();
  const Status packed = op->pack_int4(w);
  EXPECT_TRUE(packed.ok()) << packed.message() << " " << to_string(c);
  return *op;
}

/// A case whose A and C are plain, its weights filled with `fill`.
GemmCase plain_case(const GemmKind& kind, int64_t m, int64_t n, int64_t k, int64_t group) {
  GemmCase c = make_case(kind, m, n, k);
  c.problem.group = group;
  c.problem.c = DType::kF32;
  c.problem.scale = DType::kF32;
  return c;
}

// reliability.md K8: one-hot rows of A bring every weight back, with its sign, scale and zero, from
// every nibble of every storage and every remainder of columns.
TEST_P(Int4Test, OneHotRowsGiveBackEveryWeight) {
  uint64_t variant = 0;
  for (const Int4Storage storage : kInt4Storages) {
    for (int64_t n = 1; n <= 17; ++n) {
      for (int64_t k = 1; k <= 17; ++k) {
        Rng rng(++variant);
        GemmCase c = plain_case(kind(), k, n, k, draw_group(rng, k));
        c.seed = variant;
        c.storage = storage;
        c.zero_offset = static_cast<int32_t>(variant % 2);
        c.problem.zeros = variant % 3 ? Int4Zeros::kInteger : Int4Zeros::kSymmetric;
        c.problem.act_order = variant % 5 == 0;
        GemmData data(c);
        data.a.set_all(0);
        for (int64_t i = 0; i < k; ++i) data.a.set(i, i, 127);  // quantized to 127 with scale 1
        const GemmOp op = packed_op(ctx(), c, data.int4_weights(0));
        ASSERT_TRUE(op.run(args_of(c, data)).ok()) << to_string(c);
        const Int4GemmDesc desc = c.int4_shape().desc;
        const reference::Int4Values v = reference::int4_values(data.int4_weights(0), desc);
        for (int64_t i = 0; i < k; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            const int64_t g = v.group_of[static_cast<size_t>(i)];
            const auto code = static_cast<float>(v.code[static_cast<size_t>(j * k + i)]);
            // 127 (q - z) is exact, and one fused multiply-add onto zero rounds once.
            const float expected = 127 * (code - v.zero_at(j, g)) * v.scale_at(j, g);
            ASSERT_EQ(data.c.get(i, j), expected) << i << " " << j << " " << to_string(c);
          }
        }
      }
    }
  }
}

// All codes against all zeros, 0 to 16, in every nibble of one panel and a bit.
TEST_P(Int4Test, EveryCodeWithEveryZero) {
  for (const Int4Storage storage : kInt4Storages) {
    for (int zero = 0; zero <= 16; ++zero) {
      GemmCase c = plain_case(kind(), 1, 19, 16, 16);
      c.storage = storage;
      c.problem.zeros = Int4Zeros::kInteger;
      c.zero_offset = zero == 16 ? 1 : 0;
      GemmData data(c);
      std::vector<uint8_t> codes;
      for (int64_t n = 0; n < 19; ++n) {
        for (int64_t k = 0; k < 16; ++k) codes.push_back(static_cast<uint8_t>((n + k) % 16));
      }
      const Int4Words words = int4_code_words(storage, codes, 19, 16, 9);
      const Int4Words zeros = int4_zero_words(
          storage, std::vector<uint8_t>(19, static_cast<uint8_t>(std::min(zero, 15))), 19, 1, 2);
      Int4Weights w = data.int4_weights(0);
      w.codes = words.view();
      w.zero = zeros.view();
      data.int4[0].scale.set_all(1);
      const GemmOp op = packed_op(ctx(), c, w);
      for (int64_t k = 0; k < 16; ++k) {
        data.a.set_all(0);
        data.a.set(0, k, 127);
        ASSERT_TRUE(op.run(args_of(c, data)).ok());
        for (int64_t n = 0; n < 19; ++n) {
          ASSERT_EQ(data.c.get(0, n), 127 * ((n + k) % 16 - zero))
              << n << " " << k << " z " << zero;
        }
      }
    }
  }
}

// reliability.md K7: groups of every size, dividing K or not, zeros of all kinds, one row and more.
// Exact sums, where a scale or zero of another group shows.
TEST_P(Int4Test, GroupsThatDivideKAndGroupsThatDoNot) {
  uint64_t variant = 1000;
  for (const int64_t group : {16, 24, 32, 48, 64, 100, 128, 0}) {
    const int64_t unit = group == 0 ? 70 : group;
    for (const int64_t k : {unit - 1, unit, unit + 1, 2 * unit, 2 * unit + 5, 3 * unit - 2,
                            int64_t{36}, int64_t{96}, int64_t{192}, int64_t{200}}) {
      for (const Int4Zeros zeros : {Int4Zeros::kSymmetric, Int4Zeros::kInteger, Int4Zeros::kF32}) {
        for (const int64_t m : {1, 2, 17}) {
          for (const int64_t n : {1, 16, 33, 64}) {
            GemmCase c = make_case(kind(), m, n, k);
            vary(c, ++variant);
            c.fill = Fill::kExact;
            c.problem.group = group;
            c.problem.zeros = zeros;
            c.problem.epilogue.activation = Activation::kNone;
            ASSERT_TRUE(check_case(ctx(), c));
          }
        }
      }
    }
  }
}

// What a storage or a version says is all the same to the packed weights.
TEST_P(Int4Test, TheSameWeightsInEveryStorageArePackedAlike) {
  for (const char* shape : {"m:1/n:17/k:33", "m:1/n:48/k:256", "m:1/n:5/k:130"}) {
    for (const bool act_order : {false, true}) {
      std::vector<std::vector<std::byte>> packed;
      for (const Int4Storage storage : kInt4Storages) {
        for (const int32_t offset : {0, 1}) {
          GemmCase c = make_case(kind(), shape);
          c.problem.group = 32;
          c.problem.zeros = Int4Zeros::kInteger;
          c.problem.act_order = act_order;
          c.storage = storage;
          GemmData data(c);
          const int64_t n = c.problem.n, k = c.problem.k, groups = (k + 31) / 32;
          Rng rng(9);
          std::vector<uint8_t> codes, zeros;
          for (int64_t i = 0; i < n * k; ++i) codes.push_back(static_cast<uint8_t>(rng.in(0, 15)));
          for (int64_t i = 0; i < n * groups; ++i) {
            zeros.push_back(static_cast<uint8_t>(rng.in(1, 15) - offset));
          }
          const Int4Words words = int4_code_words(storage, codes, n, k, 7);
          const Int4Words zero_words = int4_zero_words(storage, zeros, n, groups, 1);
          Int4Weights w = data.int4_weights(0);
          w.codes = words.view();
          w.zero = zero_words.view();
          w.zero_offset = offset;
          TestMatrix& scale = data.int4[0].scale;
          for (int64_t j = 0; j < n; ++j) {
            for (int64_t g = 0; g < groups; ++g) {
              const double s = 0.5 + static_cast<double>(j + 100 * g) / 512;
              storage == Int4Storage::kRowMajor ? scale.set(j, g, s) : scale.set(g, j, s);
            }
          }
          for (int64_t i = 0; act_order && i < k; ++i) {
            data.g_idx.set(0, i, static_cast<double>(i * 7 % k / 32));
          }
          packed.push_back(bytes_of(packed_op(ctx(), c, w).packed()));
        }
      }
      for (const std::vector<std::byte>& other : packed) EXPECT_EQ(other, packed[0]) << shape;
    }
  }
}

// bug_log L12: a flag does not tell whether columns are sorted; g_idx that says what no g_idx means
// gives the same bits.
TEST_P(Int4Test, SortedGroupIndicesChangeNothing) {
  for (const char* shape : {"m:3/n:33/k:200", "m:1/n:64/k:256", "m:17/n:20/k:37"}) {
    GemmCase c = make_case(kind(), shape);
    c.problem.group = 32;
    c.problem.zeros = Int4Zeros::kInteger;
    const std::vector<uint32_t> without = bits_in(ctx(), c);
    GemmCase with = c;
    with.problem.act_order = true;
    with.order = GroupOrder::kSorted;
    GemmData data(c), sorted(with);
    Int4Weights w = data.int4_weights(0);
    w.g_idx = sorted.g_idx.vector();
    const GemmOp op = packed_op(ctx(), with, w);
    EXPECT_EQ(output_bits(op, with, data), without) << shape;
  }
}

/// Row i of the result is row order[i] of `m`.
TestMatrix rows_of(const TestMatrix& m, const std::vector<int64_t>& order) {
  TestMatrix out(m.dtype(), m.rows(), m.cols());
  for (int64_t i = 0; i < m.rows(); ++i) {
    for (int64_t j = 0; j < m.cols(); ++j) {
      out.set_bits(i, j, m.bits(order[static_cast<size_t>(i)], j));
    }
  }
  return out;
}

// The columns of K in another order, in A, in the codes (AWQ: rows of words) and in g_idx: the same
// product. Integer sums do not even change a bit.
TEST_P(Int4Test, TheOrderOfKDoesNotMatter) {
  GemmCase c = make_case(kind(), "m:5/n:40/k:192");
  c.storage = Int4Storage::kAwq;
  c.problem.group = 32;
  c.problem.act_order = true;
  c.order = GroupOrder::kShuffled;
  c.problem.c = DType::kF32;
  GemmData data(c);
  const GemmOp op = packed_op(ctx(), c, data.int4_weights(0));
  const std::vector<uint32_t> expected = output_bits(op, c, data);
  std::vector<int64_t> order;
  for (int64_t k = 0; k < 192; ++k) order.push_back(k * 5 % 192);
  const TestMatrix words = rows_of(data.int4[0].words, order);
  TestMatrix g_idx(DType::kS32, 1, 192), a(DType::kBF16, 5, 192);
  for (int64_t k = 0; k < 192; ++k) {
    const int64_t from = order[static_cast<size_t>(k)];
    g_idx.set(0, k, data.g_idx.get(0, from));
    for (int64_t i = 0; i < 5; ++i) a.set_bits(i, k, data.a.bits(i, from));
  }
  Int4Weights w = data.int4_weights(0);
  w.codes = words.view();
  w.g_idx = g_idx.vector();
  const reference::Exact exact = exact_answer(c, data);
  const GemmOp permuted = packed_op(ctx(), c, w);
  GemmOp::Args args = args_of(c, data);
  args.a = a.view();
  ASSERT_TRUE(permuted.run(args).ok());
  if (c.integer_sums()) {
    EXPECT_EQ(element_bits(data.c.view()), expected);
  }
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t j = 0; j < 40; ++j) {
      EXPECT_TRUE(reference::accepts(exact.at(i, j), DType::kF32, data.c.get(i, j)))
          << i << " " << j;
    }
  }
}

// One packed form for W4A16, W4A8, every level, every type of C.
TEST_P(Int4Test, OtherPlansTakeTheSameWeights) {
  for (const bool act_order : {false, true}) {
    GemmCase c = make_case(kind(), "m:7/n:40/k:200");
    c.problem.group = 48;
    c.problem.act_order = act_order;
    GemmData data(c);
    const PackedWeights packed = packed_op(ctx(), c, data.int4_weights(0)).packed();
    for (const TestIsa& isa : isas_to_test()) {
      if (!isa.skip_reason.empty()) continue;
      for (const GemmKind& other_kind : kInt4Kinds) {
        GemmCase other = c;
        other.problem.activations = other_kind.activations;
        other.problem.c = DType::kF32;
        const std::vector<uint32_t> expected = bits_in(shared_context(isa), other);
        GemmData other_data(other);
        Result<GemmOp> op = GemmOp::create(shared_context(isa), other);
        ASSERT_TRUE(op.ok()) << op.status().message();
        op->use(packed);
        EXPECT_EQ(output_bits(*op, other, other_data), expected) << to_string(other);
      }
    }
  }
}

TEST_P(Int4Test, ProgressIsReportedToTheEnd) {
  struct Log {
    std::vector<int64_t> done;
    int64_t total = -1;
    static void note(void* user, int64_t done, int64_t total) {
      auto* log = static_cast<Log*>(user);
      log->done.push_back(done);
      log->total = total;
    }
  };
  auto pool = PersistentPool::create(2);
  ASSERT_TRUE(pool.ok());
  const Context threaded = context_at(isa(), pool->get());
  for (const Context* context : {&ctx(), &threaded}) {
    const GemmCase c = make_case(kind(), "m:1/n:1030/k:256");
    GemmData data(c);
    Result<GemmOp> op = GemmOp::create(*context, c);
    ASSERT_TRUE(op.ok());
    Log log;
    ASSERT_TRUE(op->pack_int4(data.int4_weights(0), {&Log::note, &log}).ok());
    ASSERT_FALSE(log.done.empty());
    EXPECT_EQ(log.total, 65);
    EXPECT_EQ(log.done.back(), 65);
    EXPECT_TRUE(std::is_sorted(log.done.begin(), log.done.end()));
    EXPECT_EQ(bytes_of(op->packed()), bytes_of(packed_op(ctx(), c, data.int4_weights(0)).packed()));
  }
}

// ---- inputs of the field's faults ---------------------------------------------------------------

TEST_P(Int4Test, T03BothVersionsOfGptqHoldTheSameZeros) {
  for (const auto& [stored, offset] : {std::pair{7, 1}, std::pair{8, 0}}) {
    GemmCase c = plain_case(kind(), 1, 8, 128, 128);
    c.problem.zeros = Int4Zeros::kInteger;
    c.zero_offset = offset;
    GemmData data(c);
    data.int4[0].words.set_all(0);
    for (int64_t i = 0; i < 16; ++i) {
      for (int64_t j = 0; j < 8; ++j) data.int4[0].words.set_bits(i, j, 0x88888888u);
    }
    data.int4[0].zero.set_bits(0, 0, 0x11111111u * static_cast<uint32_t>(stored));
    data.int4[0].scale.set_all(1);
    const GemmOp op = packed_op(ctx(), c, data.int4_weights(0));
    ASSERT_TRUE(op.run(args_of(c, data)).ok());
    for (int64_t j = 0; j < 8; ++j) EXPECT_EQ(data.c.get(0, j), 0.0);
  }
}

TEST_P(Int4Test, I06GroupsThatAreNoPartOfABlockOfK) {
  GemmCase c = plain_case(kind(), 2, 20, 96, 24);
  GemmData data(c);
  data.a.set_all(127);
  TestMatrix& words = data.int4[0].words;
  for (int64_t i = 0; i < words.rows(); ++i) {
    for (int64_t j = 0; j < words.cols(); ++j) words.set_bits(i, j, 0x99999999u);
  }
  for (int64_t g = 0; g < 4; ++g)
    data.int4[0].scale.set_row(g, std::ldexp(1.0, static_cast<int>(g)));
  const GemmOp op = packed_op(ctx(), c, data.int4_weights(0));
  ASSERT_TRUE(op.run(args_of(c, data)).ok());
  for (int64_t j = 0; j < 20; ++j) EXPECT_EQ(data.c.get(1, j), 127.0 * 24 * (1 + 2 + 4 + 8));
}

TEST_P(Int4Test, ShapesOfTheFieldsFaults) {  // I07, I08, I11, L12, with exact and random values
  struct Row {
    const char* shape;
    int64_t group;
    Int4Zeros zeros;
    GroupOrder order;
    bool act_order;
  };
  const Row rows[] = {
      {"m:3/n:24/k:192", 48, Int4Zeros::kSymmetric, GroupOrder::kSorted, false},
      {"m:32/n:3/k:64", 32, Int4Zeros::kInteger, GroupOrder::kSorted, false},
      {"m:1/n:40/k:36", 32, Int4Zeros::kInteger, GroupOrder::kSorted, false},
      {"m:2/n:40/k:36", 32, Int4Zeros::kInteger, GroupOrder::kSorted, false},
      {"m:17/n:40/k:36", 32, Int4Zeros::kInteger, GroupOrder::kSorted, false},
      {"m:3/n:5/k:4304", 32, Int4Zeros::kInteger, GroupOrder::kSorted, false},
      {"m:2/n:9/k:64", 32, Int4Zeros::kInteger, GroupOrder::kAlternating, true},
  };
  for (const Row& row : rows) {
    for (const Fill fill : {Fill::kExact, Fill::kRandom, Fill::kExtreme}) {
      GemmCase c = make_case(kind(), row.shape);
      c.fill = fill;
      c.problem.group = row.group;
      c.problem.zeros = row.zeros;
      c.problem.act_order = row.act_order;
      c.order = row.order;
      EXPECT_TRUE(check_case(ctx(), c));
    }
  }
}

TEST_P(Int4Test, I12SumsBeyondF16) {
  GemmCase c = plain_case(kind(), 1, 16, 128, 128);
  GemmData data(c);
  data.a.set_all(1000);
  TestMatrix& words = data.int4[0].words;
  for (int64_t i = 0; i < 16; ++i) {
    for (int64_t j = 0; j < 16; ++j) words.set_bits(i, j, 0xffffffffu);
  }
  data.int4[0].scale.set_all(1);
  const GemmOp op = packed_op(ctx(), c, data.int4_weights(0));
  ASSERT_TRUE(op.run(args_of(c, data)).ok());
  // W4A8 multiplies by 1000 / 127 in f32 last: one rounding of the scale, one of the product.
  EXPECT_NEAR(data.c.get(0, 3), 896000.0, c.integer_sums() ? 896000 * 0x1p-22 : 0);
}

TEST_P(Int4Test, I13OperandsEqualToTheirZeroGiveNothing) {
  for (const Int4Storage storage : kInt4Storages) {
    GemmCase c = plain_case(kind(), 3, 16, 4096, 128);
    c.storage = storage;
    c.problem.zeros = Int4Zeros::kInteger;
    GemmData data(c);
    std::vector<uint8_t> codes, zeros;
    for (int64_t n = 0; n < 16; ++n) {
      codes.insert(codes.end(), 4096, static_cast<uint8_t>(n));
      zeros.insert(zeros.end(), 32, static_cast<uint8_t>(n));
    }
    const Int4Words words = int4_code_words(storage, codes, 16, 4096);
    const Int4Words zero_words = int4_zero_words(storage, zeros, 16, 32);
    Int4Weights w = data.int4_weights(0);
    w.codes = words.view();
    w.zero = zero_words.view();
    const GemmOp op = packed_op(ctx(), c, w);
    ASSERT_TRUE(op.run(args_of(c, data)).ok());
    for (int64_t j = 0; j < 16; ++j) EXPECT_EQ(data.c.get(2, j), 0.0) << j;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Int4Test, every_int4(), gemm_test_name);

}  // namespace
}  // namespace quern::test
