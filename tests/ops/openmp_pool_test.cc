// The OpenMP adapter. CTest runs this program three times: as it is, with OMP_THREAD_LIMIT=3 and
// with OMP_DYNAMIC, so that OpenMP delivers fewer threads than a pool asks for.
#include "quern/openmp_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/ops/gemm_fixture.h"
#include "tests/ops/phase_log.h"

namespace quern::test {
namespace {

OpenMpPool make_pool(int threads) {
  const auto pool = OpenMpPool::create(threads);
  EXPECT_TRUE(pool.ok()) << pool.status().message();
  return *pool;
}

TEST(OpenMpPool, RefusesNonsense) {
  for (const int threads : {0, -1, 1025}) {
    const Status s = OpenMpPool::create(threads).status();
    EXPECT_EQ(s.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(s.message(),
              "invalid argument: threads (" + std::to_string(threads) + ") must be in [1, 1024]");
  }
  EXPECT_EQ(OpenMpPool::create()->size(), omp_get_max_threads());
}

TEST(OpenMpPool, KeepsTheContract) {
  for (int threads = 1; threads <= 16; ++threads) {
    OpenMpPool pool = make_pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const int phases : {0, 1, 2, 3, 7}) check_phases(pool, phases);
  }
  OpenMpPool many = make_pool(64);
  check_phases(many, 3);
}

/// The operating system's threads that took part in a run.
struct Participants {
  std::mutex mutex;
  std::set<std::thread::id> ids;

  static void call(void* ctx, int, int, int) {
    auto& self = *static_cast<Participants*>(ctx);
    const std::lock_guard<std::mutex> lock(self.mutex);
    self.ids.insert(std::this_thread::get_id());
  }
};

// With OMP_THREAD_LIMIT this is the proof that fewer threads were there and everybody's share was
// done.
TEST(OpenMpPool, RunsOnAsManyThreadsAsThereAre) {
  OpenMpPool pool = make_pool(8);
  Participants seen;
  pool.run(2, &Participants::call, &seen);
  const size_t limit = static_cast<size_t>(omp_get_thread_limit());
  EXPECT_LE(seen.ids.size(), limit);
  if (!omp_get_dynamic()) {
    EXPECT_EQ(seen.ids.size(), std::min<size_t>(8, limit));
  }
  EXPECT_EQ(seen.ids.count(std::this_thread::get_id()), 1u);
  check_phases(pool, 4);
}

TEST(OpenMpPool, InsideAParallelRegion) {
  OpenMpPool pool = make_pool(5);
  for (const int levels : {1, 2}) {  // 1: the inner region gets one thread
    omp_set_max_active_levels(levels);
#pragma omp parallel num_threads(3)
    for (int i = 0; i < 20; ++i) check_phases(pool, 3);
  }
}

TEST(OpenMpPool, InsideItself) {
  OpenMpPool pool = make_pool(3);
  std::atomic<int> calls{0};
  struct Both {
    OpenMpPool* pool;
    std::atomic<int>* calls;
  } both = {&pool, &calls};
  pool.run(
      2,
      [](void* ctx, int, int, int) {
        const Both& b = *static_cast<Both*>(ctx);
        b.pool->run(
            2, [](void* count, int, int, int) { ++*static_cast<std::atomic<int>*>(count); },
            b.calls);
      },
      &both);
  EXPECT_EQ(calls.load(), 2 * 3 * 2 * 3);
}

TEST(OpenMpPool, FromSeveralThreadsAtOnce) {
  OpenMpPool pool = make_pool(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&pool] {
      for (int i = 0; i < 50; ++i) check_phases(pool, 3);
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(OpenMpPoolDeathTest, AnExceptionEndsTheProgram) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        OpenMpPool pool = make_pool(2);
        // One thread throws: where two do, the second's terminate can come before the first's text.
        pool.run(
            1,
            [](void*, int, int tid, int) {
              if (tid == 0) throw std::runtime_error("from fn");
            },
            nullptr);
      },
      "from fn");
}

using GemmOpenMpTest = GemmTest;

TEST_P(GemmOpenMpTest, OneToSixteenThreadsGiveTheSameBits) {
  uint64_t variant = 300;
  for (const char* shape : {"m:1/n:768/k:256", "m:16/n:333/k:300", "m:33/n:1009/k:101"}) {
    GemmCase c = make_case(kind(), shape);
    vary(c, ++variant);
    c.residual_is_c = false;  // every run must start from the same operands
    GemmData data(c);
    Result<GemmOp> serial = GemmOp::create(ctx(), c);
    ASSERT_TRUE(serial.ok()) << serial.status().message();
    ASSERT_TRUE(serial->pack(data).ok());
    const std::vector<uint32_t> expected = output_bits(*serial, c, data);
    for (int threads = 1; threads <= 16; ++threads) {
      OpenMpPool pool = make_pool(threads);
      Result<GemmOp> op = GemmOp::create(context_at(isa(), &pool), c);
      ASSERT_TRUE(op.ok()) << op.status().message();
      ASSERT_TRUE(op->pack(data).ok());
      EXPECT_EQ(output_bits(*op, c, data), expected) << threads << " " << to_string(c);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, GemmOpenMpTest, every_gemm(), gemm_test_name);

}  // namespace
}  // namespace quern::test
