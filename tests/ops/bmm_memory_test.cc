// NaN and infinity stay where they are; operands far apart; no allocation; which batches overlap.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>

#include "ops/overlap.h"
#include "tests/ops/allocation_counter.h"
#include "tests/ops/bmm_case.h"
#include "tests/ops/one_blocking.h"
#include "tests/ops/watching_pool.h"

namespace quern::test {
namespace {

using BmmMemoryTest = BmmTest;

/// Runs the case clean and after `poison(data)`; only elements that `hit` names may differ, and
/// they are not finite.
template <typename Poison, typename Hit>
void expect_contained(const Context& ctx, const BmmCase& c, Poison poison, Hit hit) {
  BmmData clean(c), dirty(c);
  poison(dirty);
  Result<BmmOp> op = BmmOp::create(ctx, c);
  ASSERT_TRUE(op.ok());
  ASSERT_TRUE(op->pack(c, clean).ok());
  const std::vector<uint32_t> before = output_bits(*op, c, clean);
  ASSERT_TRUE(op->pack(c, dirty).ok());
  const std::vector<uint32_t> after = output_bits(*op, c, dirty);
  ASSERT_EQ(before.size(), after.size());
  size_t at = 0;
  for (int64_t b = 0; b < c.problem.batch; ++b) {
    for (int64_t i = 0; i < c.problem.m; ++i) {
      for (int64_t j = 0; j < c.problem.n; ++j, ++at) {
        if (hit(b, i, j)) {
          EXPECT_FALSE(std::isfinite(dirty.c.get(b, i, j))) << b << " " << i << " " << j;
        } else {
          ASSERT_EQ(after[at], before[at])
              << "leaked to " << b << " " << i << " " << j << " of " << to_string(c);
        }
      }
    }
  }
}

TEST_P(BmmMemoryTest, NonFiniteValuesStayInTheirMatrix) {
  for (const int64_t k : {1, 3, 31, 33, 65, 130}) {
    for (const int64_t m : {1, 4, 17}) {
      for (const float value : kNonFinite) {
        BmmCase c = make_bmm(b(), 3, m, 21, k);
        c.a_form = BatchForm::kHeads;
        c.b_form = k % 2 != 0 ? BatchForm::kHeads : BatchForm::kMatrices;
        c.gap = 1;
        c.a_pad = c.b_pad = k % 3;  // gaps are NaN
        expect_contained(
            ctx(), c, [&](BmmData& d) { d.a.set_row(1, m - 1, value); },
            [&](int64_t matrix, int64_t i, int64_t) { return matrix == 1 && i == m - 1; });
        if (c.codes()) {
          expect_contained(
              ctx(), c, [&](BmmData& d) { d.scale.set(1, 20, value); },
              [&](int64_t matrix, int64_t, int64_t j) { return matrix == 1 && j == 20; });
          if (b() == BmmOperand::kE4M3) {
            const bool nk = c.stored() == BmmOrder::kNK;
            expect_contained(
                ctx(), c,
                [&](BmmData& d) { d.b.set_bits(1, nk ? 20 : k - 1, nk ? k - 1 : 20, 0xff); },
                [&](int64_t matrix, int64_t, int64_t j) { return matrix == 1 && j == 20; });
          }
          continue;
        }
        for (const int64_t column : {0, 20}) {
          expect_contained(
              ctx(), c,
              [&](BmmData& d) {
                for (int64_t p = 0; p < k; ++p) {
                  const bool nk = c.stored() == BmmOrder::kNK;
                  d.b.set(1, nk ? column : p, nk ? p : column, value);
                }
              },
              [&](int64_t matrix, int64_t, int64_t j) { return matrix == 1 && j == column; });
        }
      }
    }
  }
}

// Matrices 2^31 elements apart: byte offsets pass 2^32 in A, C and B.
TEST_P(BmmMemoryTest, MatricesFarApart) {
  const BmmCase c = make_bmm(b(), 3, 5, 18, 33);
  BmmData near(c);
  Result<BmmOp> op = BmmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok());
  ASSERT_TRUE(op->pack(c, near).ok());
  const std::vector<uint32_t> expected = output_bits(*op, c, near);
  const int64_t stride = (int64_t{1} << 31) + 3;
  SparseBuffer a(size_t{3} << 32), out(size_t{3} << 32), w(size_t{3} << 32);
  if (!a.data() || !out.data() || !w.data()) GTEST_SKIP() << "no 36 GiB of address space";
  const auto spread = [stride](const BatchView& from, SparseBuffer& to) {
    const auto size = static_cast<int64_t>(size_of(from.dtype));
    for (int64_t i = 0; i < from.batch; ++i) {
      for (int64_t r = 0; r < from.rows; ++r) {
        std::memcpy(to.data() + (i * stride + r * 50) * size,
                    static_cast<const char*>(from.data) +
                        (i * from.batch_stride + r * from.row_stride) * size,
                    static_cast<size_t>(from.cols * size));
      }
    }
    return MutableBatchView{to.data(), from.dtype, from.batch, from.rows, from.cols, stride, 50};
  };
  BmmArgs args = op->args(c, near);
  args.a = spread(args.a, a);
  if (c.plain()) {
    args.b = spread(args.b, w);
  } else {
    BmmWeights weights = near.weights(c);
    weights.values = spread(weights.values, w);
    const auto packed = op->op().pack(weights);
    ASSERT_TRUE(packed.ok());
    op->use(*packed);
  }
  args.c = spread(args.c, out);
  std::memset(out.data(), 0, 64);
  ASSERT_TRUE(op->run(args).ok());
  std::vector<uint32_t> bits;
  for (int64_t i = 0; i < 3; ++i) {
    for (const uint32_t x : element_bits({out.data() + 2 * i * stride, DType::kBF16, 5, 18, 50})) {
      bits.push_back(x);
    }
  }
  EXPECT_EQ(bits, expected);
}

TEST_P(BmmMemoryTest, RunDoesNotAllocate) {
  auto pool = PersistentPool::create(2);
  ASSERT_TRUE(pool.ok());
  const Context threaded = context_at(isa(), pool->get());
  for (const Context* context : {&ctx(), &threaded}) {
    for (const int64_t m : {1, 20}) {
      const BmmCase c = make_bmm(b(), 5, m, 100, 300);
      BmmData data(c);
      Result<BmmOp> op = BmmOp::create(*context, c);
      ASSERT_TRUE(op.ok());
      ASSERT_TRUE(op->pack(c, data).ok());
      std::vector<std::byte> scratch(op->op().scratch_bytes(m));
      const BmmArgs args = op->args(c, data);
      ASSERT_TRUE(op->op().run(args, scratch).ok());
      const int64_t before = allocations();
      const Status s = op->op().run(args, scratch);
      EXPECT_EQ(allocations(), before) << to_string(c);
      EXPECT_TRUE(s.ok());
    }
  }
}

// As ThreadsChangeScratchOfTheirOwn of one GEMM; a plain B is packed into scratch besides.
TEST_P(BmmMemoryTest, ThreadsChangeScratchOfTheirOwn) {
  const OneBlocking tuning(small_blocks());
  constexpr int kThreads = 3;
  for (const int64_t m : {3, 20}) {
    WatchingPool pool(kThreads);
    const BmmCase c = make_bmm(b(), 5, m, 100, 300);
    BmmData data(c);
    Result<BmmOp> op = BmmOp::create(context_at(isa(), &pool, &tuning), c);
    ASSERT_TRUE(op.ok());
    ASSERT_TRUE(op->pack(c, data).ok());
    std::vector<std::byte> scratch(op->op().scratch_bytes(m), std::byte{0xA5});
    ByteOwners owners(scratch);
    pool.after = [&](int tid) { owners.look(tid); };
    ASSERT_TRUE(op->op().run(op->args(c, data), scratch).ok());
    EXPECT_EQ(owners.shared(), 0) << to_string(c);
    EXPECT_EQ(owners.threads(), static_cast<size_t>(kThreads))
        << "nothing was cut: " << to_string(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, BmmMemoryTest, every_bmm(), bmm_test_name);

std::multiset<int64_t> bytes_of(const BatchView& v, const int8_t* base) {
  std::multiset<int64_t> bytes;
  const bool same = v.batch > 0 && v.batch_stride == 0;
  for (int64_t b = 0; b < (same ? 1 : v.batch); ++b) {
    for (int64_t i = 0; i < v.rows; ++i) {
      for (int64_t j = 0; j < v.cols; ++j) {
        bytes.insert(static_cast<const int8_t*>(v.data) - base + b * v.batch_stride +
                     i * v.row_stride + j);
      }
    }
  }
  return bytes;
}

bool share_a_byte(const std::multiset<int64_t>& x, const std::multiset<int64_t>& y) {
  return std::any_of(x.begin(), x.end(), [&](int64_t byte) { return y.count(byte) != 0; });
}

std::string layout_of(const BatchView& x) {
  return std::to_string(x.batch) + " of " + std::to_string(x.rows) + "x" + std::to_string(x.cols) +
         " strides " + std::to_string(x.batch_stride) + " " + std::to_string(x.row_stride) + " ";
}

// Many matrices, each between those of another operand: a neighbour left out goes unnoticed unless
// it alone touches. Half of the pairs are two column slices of one buffer.
TEST(BatchOverlap, LargeBatchesThatInterleave) {
  const std::vector<int8_t> base(40000);
  int sharing = 0, apart = 0;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    Rng rng(seed);
    const auto random_batch = [&](BatchView v) {
      v.data = base.data() + rng.in(0, 120);
      v.cols = rng.in(1, 4);
      v.rows = rng.in(1, 4);
      return v;
    };
    const auto random_strides = [&rng] {
      BatchView v{nullptr, DType::kS8, rng.in(20, 120), 0, 0, 0, 0};
      const int64_t slot = rng.in(5, 16);
      v.row_stride = slot;
      v.batch_stride = slot * rng.in(1, 5) + rng.in(0, 2);
      if (rng.one_in(2)) std::swap(v.row_stride, v.batch_stride);
      // Heads, with a gap behind all of a row or, where it is negative, wrapped around.
      if (rng.one_in(3)) v.row_stride = v.batch * v.batch_stride + rng.in(-30, 30);
      v.row_stride = std::max<int64_t>(v.row_stride, 4);
      return v;
    };
    const BatchView x = random_batch(random_strides());
    BatchView other = rng.one_in(2) ? x : random_strides();
    if (rng.one_in(2)) other.batch = rng.in(20, 120);
    const BatchView y = random_batch(other);
    const bool expected = share_a_byte(bytes_of(x, base.data()), bytes_of(y, base.data()));
    ASSERT_EQ(BatchRegion(x).overlaps(BatchRegion(y)), expected)
        << layout_of(x) << "and " << layout_of(y) << "seed " << seed;
    ASSERT_EQ(BatchRegion(y).overlaps(BatchRegion(x)), expected) << "seed " << seed;
    (expected ? sharing : apart) += 1;
  }
  EXPECT_GT(sharing, 500);
  EXPECT_GT(apart, 500);
}

// run() pays for the check. Comparing every row or even every matrix with every other would take
// hours a layout here; nothing reads the memory, which is not there.
TEST(BatchOverlap, CostsOnePassOverTheBatch) {
  constexpr int64_t kBatch = 1 << 20;
  const int8_t base[64] = {};
  for (const int64_t rows : {int64_t{2}, int64_t{3}, kBatch - 1}) {
    const struct {
      const char* name;
      int64_t batch_stride, row_stride;
    } layouts[] = {
        {"a row to spare behind each matrix", 32 * (rows + 1), 32},
        {"a gap behind each row of all heads", 32, 32 * kBatch + 32},
        {"rows of late heads behind the next row of early ones", 32, 32 * (kBatch / 2) + 16},
        {"rows of each head behind many rows of those before", 32, 32 * 1023 + 16},
    };
    for (const auto& l : layouts) {
      BatchView a{base, DType::kS8, kBatch, rows, 8, l.batch_stride, l.row_stride};
      BatchView c = a;
      c.data = base + 8;
      EXPECT_FALSE(BatchRegion(c).overlaps(BatchRegion(a))) << l.name;
      // A row of the last matrix of c's is reached, whatever a's own strides are.
      a.batch = 2;
      a.rows = 2;
      a.row_stride += 32;
      a.batch_stride += 64;
      a.data = base + (kBatch - 1) * l.batch_stride + 1;
      EXPECT_TRUE(BatchRegion(c).overlaps(BatchRegion(a))) << l.name;
      EXPECT_TRUE(BatchRegion(a).overlaps(BatchRegion(c))) << l.name;
      // And from behind its last row none is.
      a.data = base + (kBatch - 1) * l.batch_stride + (rows - 1) * l.row_stride + 16;
      EXPECT_FALSE(BatchRegion(c).overlaps(BatchRegion(a))) << l.name;
    }
  }
}

// One column of bytes moved to every place between the rows of a wrapped layout: the answer comes
// from remainders alone, so each remainder has its turn.
TEST(BatchOverlap, EveryRemainderOfAWrappedLayout) {
  const std::vector<int8_t> base(12000);
  for (const auto& [batch_stride, row_stride] :
       {std::pair<int64_t, int64_t>{89, 55}, {34, 144}, {97, 30}, {60, 47}, {64, 81}, {7, 610}}) {
    const BatchView x{base.data(), DType::kS8, 13, 17, 3, batch_stride, row_stride};
    const std::multiset<int64_t> in_x = bytes_of(x, base.data());
    for (const auto& [batch, rows, apart, step] :
         {std::tuple<int64_t, int64_t, int64_t, int64_t>{1, 1, 1, 1},
          {3, 2, batch_stride, row_stride},
          {3, 2, batch_stride, row_stride + 1},
          {2, 3, 77, 100}}) {
      for (int64_t at = 0; at < 3000; ++at) {
        const BatchView y{base.data() + at, DType::kS8, batch, rows, 1, apart, step};
        const bool expected = share_a_byte(bytes_of(y, base.data()), in_x);
        ASSERT_EQ(BatchRegion(x).overlaps(BatchRegion(y)), expected)
            << layout_of(x) << "and " << layout_of(y) << "at " << at;
        ASSERT_EQ(BatchRegion(y).overlaps(BatchRegion(x)), expected) << layout_of(x) << at;
      }
    }
  }
}

TEST(BatchOverlap, IsExactlySharingAByte) {
  const std::vector<int8_t> base(4000);
  Rng rng(1);
  int sharing = 0, apart = 0, with_itself = 0, interleaved = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto random_batch = [&] {
      BatchView v{
          base.data() + rng.in(0, 60), DType::kS8, rng.in(0, 5), rng.in(0, 5), rng.in(0, 9), 0, 0};
      v.row_stride = std::max<int64_t>(rng.in(1, 20), v.cols);
      v.batch_stride = rng.in(0, 40);
      if (rng.one_in(3)) v.row_stride = std::max(v.batch * v.batch_stride, v.cols);
      if (rng.one_in(4)) v.batch_stride = v.rows * v.row_stride;
      return v;
    };
    const BatchView x = random_batch(), y = random_batch();
    const std::multiset<int64_t> in_x = bytes_of(x, base.data()), in_y = bytes_of(y, base.data());
    const bool expected = share_a_byte(in_x, in_y);
    ASSERT_EQ(BatchRegion(x).overlaps(BatchRegion(y)), expected)
        << layout_of(x) << "and " << layout_of(y);
    (expected ? sharing : apart) += 1;
    if (!expected && !in_x.empty() && !in_y.empty() && *in_x.begin() < *in_y.rbegin() &&
        *in_y.begin() < *in_x.rbegin()) {
      ++interleaved;
    }
    bool own = x.batch > 1 && x.batch_stride == 0 && !in_x.empty();
    for (const int64_t b : in_x) own = own || in_x.count(b) > 1;
    ASSERT_EQ(overlaps_itself(x), own) << layout_of(x);
    with_itself += own ? 1 : 0;
  }
  EXPECT_GT(sharing, 1000);
  EXPECT_GT(apart, 1000);
  EXPECT_GT(interleaved, 100);
  EXPECT_GT(with_itself, 1000);
}

}  // namespace
}  // namespace quern::test
