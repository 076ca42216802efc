// Memory: offsets past 2^31 and 2^32, huge dimensions (bug_log B08), packed bytes, allocations.
#include <cstdlib>
#include <cstring>

#include "reference/numeric.h"
#include "tests/ops/allocation_counter.h"
#include "tests/ops/fp8_operands.h"
#include "tests/ops/gemm_fixture.h"
#include "tests/ops/one_blocking.h"
#include "tests/ops/watching_pool.h"
#include "tests/support/compare.h"
#include "tests/support/property.h"

namespace quern::test {
namespace {

using GemmMemoryTest = GemmTest;

/// Packs into heap memory that was dirtied with `byte`: allocators give back what was freed last.
std::vector<std::byte> packed_over(const Context& ctx, const GemmCase& c, int byte) {
  GemmData data(c);
  Result<GemmOp> op = GemmOp::create(ctx, c);
  EXPECT_TRUE(op.ok()) << op.status().message();
  if (!op.ok()) return {};
  EXPECT_TRUE(op->pack(data).ok());
  const size_t bytes = op->packed().bytes();
  op->use(PackedWeights());
  for (int i = 0; i < 8; ++i) {  // over the freed block, whichever list it went to
    void* const dirt[] = {std::malloc(bytes), std::aligned_alloc(64, (bytes + 63) / 64 * 64)};
    for (void* p : dirt) {
      if (p) std::memset(p, byte, bytes);
      asm volatile("" : : "r"(p) : "memory");  // the stores must happen
    }
    for (void* p : dirt) std::free(p);
  }
  EXPECT_TRUE(op->pack(data).ok());
  const PackedWeights& w = op->packed();
  return std::vector<std::byte>(w.data(), w.data() + w.bytes());
}

TEST_P(GemmMemoryTest, PackedBytesAreAllInitialised) {  // bug_log B14
  for (const char* shape : {"n:17/k:33", "n:1/k:1", "n:16/k:64", "n:15/k:63", "n:100/k:130",
                            "n:0/k:5", "n:5/k:0", "n:33/k:2"}) {
    for (const bool gate_up : {false, true}) {
      GemmCase c = make_case(kind(), shape);
      if (gate_up) c.problem.epilogue.activation = Activation::kSiluMul;
      const std::vector<std::byte> first = packed_over(ctx(), c, 0x5A);
      EXPECT_EQ(packed_over(ctx(), c, 0xA5), first) << to_string(c);
    }
  }
}

TEST_P(GemmMemoryTest, PackedBytesAreThoseOfTheLayout) {
  if (is_int4() || is_fp8() || is_fp4())
    GTEST_SKIP() << "the tests of their packing look at theirs";
  GemmCase c = make_case(kind(), 1, 19, 7);
  GemmData data(c);
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok());
  ASSERT_TRUE(op->pack(data).ok());
  const PackedWeights& w = op->packed();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(w.data()) % 64, 0u);
  const int64_t group = c.is_int8() ? 4 : 2;  // depths side by side
  for (int64_t j = 0; j < 32; ++j) {
    for (int64_t k = 0; k < 16 * group; ++k) {
      const int64_t element = (k / group) * 16 * group + (j % 16) * group + k % group;
      const std::byte* panel = w.data() + j / 16 * w.panel_bytes();
      const bool inside = j < 19 && k < 7;
      if (c.is_int8()) {
        const int expected = inside ? static_cast<int>(data.w[0].get(j, k)) + 128 : 128;
        EXPECT_EQ(std::to_integer<int>(panel[element]), expected) << j << " " << k;
      } else {
        uint16_t bits;
        std::memcpy(&bits, panel + 2 * element, 2);
        EXPECT_EQ(bits, inside ? data.w[0].bits(j, k) : 0u) << j << " " << k;
      }
    }
    if (c.is_int8()) {
      EXPECT_EQ(w.scales()[j], j < 19 ? static_cast<float>(data.w_scale[0].get(0, j)) : 0.0f);
    }
  }
}

// Rows 2^30 elements apart: byte offsets pass 2^31 and 2^32 in A, C, the residual and the weights.
TEST_P(GemmMemoryTest, RowsFarApart) {
  if (!has_plain_weights()) GTEST_SKIP() << "Int4MemoryTest and Fp4MemoryTest have codes far apart";
  const int64_t stride = (int64_t{1} << 30) + 3;
  const GemmCase c = [this] {
    GemmCase g = make_case(kind(), 5, 18, 33);
    g.problem.epilogue.residual = true;
    return g;
  }();
  GemmData near(c);
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok());
  ASSERT_TRUE(op->pack(near).ok());
  const std::vector<uint32_t> expected = output_bits(*op, c, near);

  const auto spread = [stride](const MatrixView& from, SparseBuffer& to) {
    const int64_t size = static_cast<int64_t>(size_of(from.dtype));
    for (int64_t i = 0; i < from.rows; ++i) {
      std::memcpy(to.data() + i * stride * size,
                  static_cast<const char*>(from.data) + i * from.row_stride * size,
                  static_cast<size_t>(from.cols * size));
    }
    return MutableMatrixView{to.data(), from.dtype, from.rows, from.cols, stride};
  };
  SparseBuffer a(size_t{5} << 32), out(size_t{5} << 31), residual(size_t{5} << 31);
  SparseBuffer w(size_t{19} << 31);
  if (!a.data() || !out.data() || !residual.data() || !w.data()) {
    GTEST_SKIP() << "the system refuses 80 GiB of address space";
  }
  ASSERT_TRUE(op->pack_view(spread(near.w[0].view(), w), near.w_scale[0].vector()).ok());
  GemmOp::Args args = args_of(c, near);
  args.a = spread(near.a.view(), a);
  args.residual = spread(near.residual.view(), residual);
  args.c = spread(near.c.view(), out);
  std::memset(out.data(), 0, 64);
  ASSERT_TRUE(op->run(args).ok());
  EXPECT_EQ(element_bits(args.c), expected);
}

// B08: a million columns of depth 1, and N = 2^29 where a night allows it.
TEST_P(GemmMemoryTest, ManyColumnsOfDepthOneSlow) {
  if (!has_plain_weights()) GTEST_SKIP() << "Int4MemoryTest and Fp4MemoryTest have many columns";
  std::vector<int64_t> widths = {(int64_t{1} << 20) + 5};
  if (property_cases() >= 1000000) widths.push_back(int64_t{1} << 29);
  for (const int64_t n : widths) {
    const GemmCase c = make_case(kind(), 8, n, 1);
    const GemmCase one_column = make_case(kind(), 8, 1, 1);
    GemmData small(one_column);  // A and its scales are those of the wide problem
    SparseBuffer w(static_cast<size_t>(n) * 2), scale(static_cast<size_t>(n) * 4);
    SparseBuffer out(static_cast<size_t>(n) * 16);
    if (!w.data() || !scale.data() || !out.data()) GTEST_SKIP() << "no address space";
    const bool int8 = c.is_int8();
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok()) << op.status().message();
    // Only the ends are not zero.
    const DType w_type = int8 ? DType::kS8 : c.is_fp8() ? DType::kE4M3 : DType::kBF16;
    for (const int64_t j : {int64_t{0}, n - 1}) {
      if (c.is_fp8()) {
        w.data()[j] = fp8_code(w_type, 3);
      } else {
        reference::store(w.data(), w_type, j, 3);
      }
      reference::store(scale.data(), DType::kF32, j, 0.5);
    }
    const Status packed =
        op->pack_view({w.data(), w_type, n, 1, 1}, {scale.data(), DType::kF32, n});
    if (!packed.ok()) {
      EXPECT_TRUE(packed.code() == StatusCode::kTooLarge ||
                  packed.code() == StatusCode::kOutOfMemory)
          << packed.message();
      continue;
    }
    small.a.set_all(2);
    small.a_scale.set_all(1);
    GemmOp::Args args = args_of(one_column, small);
    args.c = {out.data(), DType::kBF16, 8, n, n};
    ASSERT_TRUE(op->run(args).ok());
    const double s = int8 || c.is_fp8() ? 0.5 : 1;
    for (const int64_t i : {0, 7}) {
      for (const int64_t j : {int64_t{0}, n - 1}) {
        EXPECT_NEAR(reference::load(args.c, i, j), 6 * s, 0.02) << i << " " << j;
      }
      EXPECT_EQ(reference::load(args.c, i, n / 2), 0.0);
    }
  }
}

// The contract of run(): no allocation.
TEST_P(GemmMemoryTest, RunDoesNotAllocate) {
  auto pool = PersistentPool::create(2);
  ASSERT_TRUE(pool.ok());
  const Context threaded = context_at(isa(), pool->get());
  for (const Context* context : {&ctx(), &threaded}) {
    for (const char* shape : {"m:1/n:1000/k:300", "m:20/n:1000/k:300", "m:3/n:5/k:140000"}) {
      GemmCase c = make_case(kind(), shape);
      vary(c, 11);
      GemmData data(c);
      Result<GemmOp> op = GemmOp::create(*context, c);
      ASSERT_TRUE(op.ok()) << op.status().message();
      ASSERT_TRUE(op->pack(data).ok());
      std::vector<std::byte> scratch(op->scratch_bytes(c.problem.m));
      const GemmOp::Args args = args_of(c, data);
      ASSERT_TRUE(op->run(args, scratch).ok());
      const int64_t before = allocations();
      const Status s = op->run(args, scratch);
      EXPECT_EQ(allocations(), before) << to_string(c);
      EXPECT_TRUE(s.ok());
    }
  }
}

// Partial sums, tiles and rows that every thread prepares for itself. Real threads seldom meet in
// them for long enough to be caught.
TEST_P(GemmMemoryTest, ThreadsChangeScratchOfTheirOwn) {
  const OneBlocking tuning(small_blocks());
  constexpr int kThreads = 3;
  for (const char* shape : {"m:3/n:1000/k:300", "m:70/n:500/k:300"}) {
    WatchingPool pool(kThreads);
    const GemmCase c = make_case(kind(), shape);
    GemmData data(c);
    Result<GemmOp> op = GemmOp::create(context_at(isa(), &pool, &tuning), c);
    ASSERT_TRUE(op.ok()) << op.status().message();
    ASSERT_TRUE(op->pack(data).ok());
    std::vector<std::byte> scratch(op->scratch_bytes(c.problem.m), std::byte{0xA5});
    ByteOwners owners(scratch);
    pool.after = [&](int tid) { owners.look(tid); };
    ASSERT_TRUE(op->run(args_of(c, data), scratch).ok());
    EXPECT_EQ(owners.shared(), 0) << to_string(c);
    EXPECT_EQ(owners.threads(), static_cast<size_t>(kThreads))
        << "nothing was cut: " << to_string(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, GemmMemoryTest, every_gemm(), gemm_test_name);

}  // namespace
}  // namespace quern::test
