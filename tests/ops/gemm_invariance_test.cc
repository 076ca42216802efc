// What may not change a bit of the result: threads, other rows, alignment, earlier calls, the state
// of scratch memory, the host's MXCSR, the blocking.
#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/ops/gemm_fixture.h"
#include "tests/ops/invariance.h"

namespace quern::test {
namespace {

using GemmInvarianceTest = GemmTest;

std::vector<GemmCase> varied_cases(const GemmKind& kind) {
  std::vector<GemmCase> cases;
  uint64_t variant = 100;
  // Large enough that no op may think them too small for threads.
  for (const char* shape : {"m:1/n:768/k:256", "m:3/n:1000/k:130", "m:16/n:333/k:300",
                            "m:70/n:150/k:701", "m:33/n:1009/k:101", "m:5/n:3/k:40000"}) {
    cases.push_back(make_case(kind, shape));
    vary(cases.back(), ++variant);
    cases.back().fill = Fill::kRandom;
  }
  return cases;
}

TEST_P(GemmInvarianceTest, AnyNumberOfThreadsInAnyOrder) {
  for (const GemmCase& c : varied_cases(kind())) {
    const std::vector<uint32_t> serial = bits_in(ctx(), c);
    for_scripted_pools([&](ScriptedPool& pool) {
      EXPECT_EQ(bits_in(context_at(isa(), &pool), c), serial) << pool.size() << " " << to_string(c);
      EXPECT_LE(pool.max_phases(), 3) << "more than two barriers";
    });
  }
}

TEST_P(GemmInvarianceTest, RealThreads) {
  expect_same_bits_with_real_threads(isa(), varied_cases(kind()));
}

TEST_P(GemmInvarianceTest, ARowDoesNotKnowTheOthers) {
  for (int64_t m = 1; m <= 70; ++m) {
    GemmCase c = make_case(kind(), m, 36, 70);
    vary(c, static_cast<uint64_t>(m));
    c.fill = Fill::kRandom;
    c.residual_is_c = false;
    GemmData data(c);
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok()) << op.status().message();
    ASSERT_TRUE(op->pack(data).ok());
    const std::vector<uint32_t> batch = output_bits(*op, c, data);
    data.c.set_all(0);
    for (int64_t i = 0; i < m; ++i) {
      ASSERT_TRUE(op->run(row_block(args_of(c, data), i, 1)).ok());
    }
    EXPECT_EQ(element_bits(data.c.view()), batch) << to_string(c);
  }
}

// A plan and its packed weights may be used by any number of threads, each with its own scratch.
TEST_P(GemmInvarianceTest, OnePlanFromEightThreadsAtOnce) {
  auto pool = PersistentPool::create(2);
  ASSERT_TRUE(pool.ok());
  const Context threaded = context_at(isa(), pool->get());
  for (const Context* context : {&ctx(), &threaded}) {
    GemmCase c = make_case(kind(), "m:20/n:333/k:300");
    c.problem.epilogue.bias = true;
    GemmData shared(c);
    Result<GemmOp> op = GemmOp::create(*context, c);
    ASSERT_TRUE(op.ok()) << op.status().message();
    ASSERT_TRUE(op->pack(shared).ok());
    const std::vector<uint32_t> expected = output_bits(*op, c, shared);
    std::atomic<int> wrong{0};
    std::vector<std::thread> callers;
    for (int t = 0; t < 8; ++t) {
      callers.emplace_back([&, t] {
        const int64_t rows = 20 - t;  // calls differ, so that threads are in different kernels
        TestMatrix out(c.problem.c, 20, 333);
        std::vector<std::byte> scratch(op->scratch_bytes(rows));
        for (int i = 0; i < 20; ++i) {
          out.set_all(0);
          GemmOp::Args args = args_of(c, shared);
          args.c = out.mutable_view();
          const Status s = op->run(row_block(args, 0, rows), scratch);
          const std::vector<uint32_t> got = element_bits(out.view());
          const bool same = std::equal(got.begin(), got.begin() + rows * 333, expected.begin());
          if (!s.ok() || !same) ++wrong;
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(wrong, 0) << to_string(c);
  }
}

// bug_log B19, B03, B05: one plan, M changing from call to call, answers as if each were the first.
TEST_P(GemmInvarianceTest, OnePlanWithChangingM) {
  for (const char* shape : {"m:70/n:4/k:20", "m:70/n:33/k:65", "m:70/n:80/k:127"}) {
    GemmCase c = make_case(kind(), shape);
    GemmData data(c);
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok()) << op.status().message();
    ASSERT_TRUE(op->pack(data).ok());
    const std::vector<uint32_t> all = output_bits(*op, c, data);
    std::vector<int64_t> counts = {7, 64, 3, 1};
    for (int64_t m = 1; m <= 70; ++m) counts.push_back(m);
    for (const int64_t m : counts) {
      data.c.set_all(-1);
      ASSERT_TRUE(op->run(row_block(args_of(c, data), 0, m)).ok()) << m;
      const std::vector<uint32_t> got = element_bits(data.c.view());
      const auto end = got.begin() + m * c.problem.n;
      EXPECT_TRUE(std::equal(got.begin(), end, all.begin())) << "m " << m << " " << to_string(c);
      const uint32_t untouched = data.c.bits(69, 0);
      EXPECT_TRUE(m == 70 ||
                  std::all_of(end, got.end(), [&](uint32_t b) { return b == untouched; }))
          << "wrote below row " << m;
    }
  }
}

TEST_P(GemmInvarianceTest, AnyAlignment) {
  for (GemmCase c : varied_cases(kind())) {
    c.flush = Flush::kStart;
    c.offset = 0;
    const std::vector<uint32_t> aligned = bits_in(ctx(), c);
    for (size_t offset = 1; offset < 64; offset += 1) {
      c.offset = offset;
      EXPECT_EQ(bits_in(ctx(), c), aligned) << to_string(c);
    }
    c.flush = Flush::kEnd;
    c.offset = 0;
    EXPECT_EQ(bits_in(ctx(), c), aligned) << to_string(c);
  }
}

// bug_log B15, B14: results do not depend on what scratch memory held.
TEST_P(GemmInvarianceTest, AnyScratchContents) {
  for (uint64_t variant = 0; variant < 200; ++variant) {
    GemmCase c = random_case(kind().op, variant);
    c.problem.activations = kind().activations;
    c.problem.a = kind().a;
    c.residual_is_c = false;
    GemmData data(c);
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok()) << op.status().message();
    ASSERT_TRUE(op->pack(data).ok());
    const std::vector<uint32_t> first = output_bits(*op, c, data, 0x00);
    for (const unsigned char poison : std::initializer_list<unsigned char>{0x5A, 0xA5, 0xFF}) {
      EXPECT_EQ(output_bits(*op, c, data, poison), first) << to_string(c);
    }
  }
}

TEST_P(GemmInvarianceTest, HostMxcsrIsNeitherUsedNorChanged) {
  auto pool = PersistentPool::create(2);
  ASSERT_TRUE(pool.ok());
  const Context threaded = context_at(isa(), pool->get());
  for (const Context* context : {&ctx(), &threaded}) {
    for (GemmCase c : varied_cases(kind())) {
      c.fill = Fill::kExtreme;
      c.residual_is_c = false;
      GemmData data(c);
      Result<GemmOp> op = GemmOp::create(*context, c);
      ASSERT_TRUE(op.ok()) << op.status().message();
      ASSERT_TRUE(op->pack(data).ok());
      const std::vector<uint32_t> expected = output_bits(*op, c, data);
      std::vector<std::byte> scratch(op->scratch_bytes(c.problem.m));
      for (const unsigned mxcsr : kHostMxcsr) {
        data.c.set_all(0);
        const Status status =
            run_with_mxcsr(mxcsr, [&] { return op->run(args_of(c, data), scratch); });
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(element_bits(data.c.view()), expected) << mxcsr << " " << to_string(c);
      }
    }
  }
}

TEST_P(GemmInvarianceTest, AnyBlocking) {
  Rng rng(5);
  std::vector<GemmCase> cases = varied_cases(kind());
  cases.push_back(make_case(kind(), "m:13/n:70/k:1500"));
  cases.push_back(make_case(kind(), "m:2/n:20/k:140000"));  // sums beyond 32 bits
  const std::vector<std::vector<uint32_t>> expected = bits_of_all(ctx(), cases);
  for (int i = 0; i < 40; ++i) {
    GemmBlocking b;
    b.nr = static_cast<int32_t>(rng.in(1, 4));
    b.mr = static_cast<int32_t>(rng.in(1, 20 / b.nr));  // within every family's registers
    b.mc = rng.in(1, 12) * b.mr;
    b.nc = 16 * b.nr;
    b.kc = 64 * rng.in(0, 8);
    b.prefetch_bytes = static_cast<int32_t>(64 * rng.in(0, 32));
    expect_same_bits_with_blocking(isa(), b, cases, expected);
  }
}

TEST_P(GemmInvarianceTest, WithAndWithoutAvx512Bf16) {
  std::vector<GemmCase> cases = varied_cases(kind());
  cases.push_back(make_case(kind(), "m:13/n:70/k:1501"));
  expect_same_bits_without_avx512_bf16(isa(), cases);
}

INSTANTIATE_TEST_SUITE_P(Ops, GemmInvarianceTest, every_gemm(), gemm_test_name);

}  // namespace
}  // namespace quern::test
