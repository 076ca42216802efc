// What may not change a bit of the result: threads, the other matrices and rows, the form of every
// operand, scratch, alignment, the kernel's way to a dot product. And who computes what.
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "quern/bf16_gemm.h"
#include "quern/int8_gemm.h"
#include "reference/numeric.h"
#include "tests/ops/bmm_case.h"
#include "tests/ops/invariance.h"
#include "tests/ops/watching_pool.h"
#include "tests/support/compare.h"

namespace quern::test {
namespace {

using BmmInvarianceTest = BmmTest;

/// Large enough that the op does not think them too small for threads.
std::vector<BmmCase> varied_cases(BmmOperand b) {
  std::vector<BmmCase> cases;
  uint64_t variant = 100;
  for (const auto& [batch, m, n, k] :
       {std::tuple<int64_t, int64_t, int64_t, int64_t>{2, 1, 1024, 128},
        {17, 3, 100, 130},
        {3, 16, 333, 100},
        {1, 70, 150, 701},
        {5, 33, 109, 301},
        {3, 5, 3, 14000}}) {
    cases.push_back(make_bmm(b, batch, m, n, k));
    vary(cases.back(), ++variant);
    cases.back().fill = Fill::kRandom;
  }
  return cases;
}

TEST_P(BmmInvarianceTest, AnyNumberOfThreadsInAnyOrderInOnePhase) {
  for (const BmmCase& c : varied_cases(b())) {
    const std::vector<uint32_t> serial = bits_in(ctx(), c);
    for_scripted_pools([&](ScriptedPool& pool) {
      const Context context = context_at(isa(), &pool);
      BmmData data(c);
      Result<BmmOp> op = BmmOp::create(context, c);
      ASSERT_TRUE(op.ok());
      ASSERT_TRUE(op->pack(c, data).ok());
      pool.reset_counters();
      EXPECT_EQ(output_bits(*op, c, data), serial) << pool.size() << " " << to_string(c);
      EXPECT_EQ(pool.phases(), 1) << "one region without a barrier";
    });
  }
}

TEST_P(BmmInvarianceTest, RealThreads) {
  expect_same_bits_with_real_threads(isa(), varied_cases(b()));
}

/// e4m3 as bf16, which holds it.
TestMatrix decoded(const MatrixView& codes) {
  TestMatrix m(DType::kBF16, codes.rows, codes.cols);
  for (int64_t i = 0; i < codes.rows; ++i) {
    for (int64_t j = 0; j < codes.cols; ++j) m.set(i, j, reference::load(codes, i, j));
  }
  return m;
}

// The numbers are those of the GEMMs: a product of the batch has the bits of bf16_gemm, or of
// int8_gemm with bf16 activations; of e4m3 those of bf16_gemm on what it decodes to, times the
// scale.
TEST_P(BmmInvarianceTest, BitsOfTheGemms) {
  for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 16, 33}) {
    BmmCase c = make_bmm(b(), 3, m, 50, 77);
    vary(c, static_cast<uint64_t>(m));
    c.order = BmmOrder::kNK;
    c.b_form = BatchForm::kHeads;
    c.scale_of_matrix = false;
    if (b() == BmmOperand::kPlainKN) continue;
    const bool floats = b() == BmmOperand::kE4M3;
    if (floats) c.problem.c = DType::kF32;
    BmmData data(c);
    Result<BmmOp> op = BmmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok());
    ASSERT_TRUE(op->pack(c, data).ok());
    ASSERT_TRUE(op->run(op->args(c, data)).ok());
    for (int64_t i = 0; i < 3; ++i) {
      TestMatrix alone(c.problem.c, m, 50);
      const MatrixView a = data.a.matrix(i), w = data.b.matrix(i);
      std::vector<std::byte> scratch(1 << 20);
      if (c.codes() && !floats) {
        const auto gemm = Int8Gemm::create(
            ctx(), {50, 77, Int8Activations::kBF16, DType::kBF16, c.problem.c, {}, {}});
        ASSERT_TRUE(gemm.ok());
        const char* scale = static_cast<const char*>(data.scale.view().data) +
                            i * data.scale.view().row_stride * size_of(c.scale);
        const auto packed = gemm->pack({w, {scale, c.scale, 50}});
        ASSERT_TRUE(packed.ok());
        ASSERT_TRUE(gemm->run({a, {}, &*packed, alone.mutable_view(), {}, {}}, scratch).ok());
      } else {
        const auto gemm = Bf16Gemm::create(ctx(), {50, 77, c.problem.c, {}, {}});
        ASSERT_TRUE(gemm.ok());
        const TestMatrix weights = floats ? decoded(w) : TestMatrix();
        const auto packed = gemm->pack(floats ? weights.view() : w);
        ASSERT_TRUE(packed.ok());
        ASSERT_TRUE(gemm->run({a, &*packed, alone.mutable_view(), {}, {}}, scratch).ok());
      }
      for (int64_t r = 0; floats && r < m; ++r) {
        for (int64_t j = 0; j < 50; ++j) {
          const auto sum = static_cast<float>(alone.get(r, j));
          alone.set(r, j, sum * static_cast<float>(data.scale.get(i, j)));
        }
      }
      EXPECT_TRUE(same_bits(data.c.matrix(i), alone.view(), to_string(c)));
    }
  }
}

TEST_P(BmmInvarianceTest, AMatrixAndARowDoNotKnowTheOthers) {
  for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 13, 17, 40}) {
    BmmCase c = make_bmm(b(), 3, m, 36, 70);
    vary(c, static_cast<uint64_t>(m));
    c.fill = Fill::kRandom;
    BmmData data(c);
    Result<BmmOp> op = BmmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok()) << op.status().message();
    ASSERT_TRUE(op->pack(c, data).ok());
    const std::vector<uint32_t> all = output_bits(*op, c, data);
    if (!c.plain() && c.b_form != BatchForm::kShared) continue;  // packed for the whole batch
    data.c.set_all(0);
    for (int64_t matrix = 0; matrix < 3; ++matrix) {
      for (int64_t row = 0; row < m; ++row) {
        const auto from = [&](auto view) {
          const auto skip = matrix * view.batch_stride + row * view.row_stride;
          view.data = const_cast<char*>(static_cast<const char*>(view.data)) +
                      skip * static_cast<int64_t>(size_of(view.dtype));
          view.batch = view.rows = 1;
          return view;
        };
        BmmArgs args = op->args(c, data);
        args.a = from(args.a);
        args.c = from(args.c);
        if (c.plain()) {
          const MatrixView w = data.b.matrix(matrix);
          args.b.data = w.data;
          args.b.batch = 1;
        }
        ASSERT_TRUE(op->run(args).ok());
      }
    }
    EXPECT_EQ(element_bits(data.c), all) << to_string(c);
  }
}

// Where operands lie, and whether B was packed before, is nobody's business.
TEST_P(BmmInvarianceTest, FormsOrdersAndAlignments) {
  for (BmmCase c : varied_cases(b())) {
    c.a_form = c.b_form = c.c_form = BatchForm::kMatrices;
    c.a_pad = c.b_pad = c.c_pad = c.gap = 0;
    c.offset = 0;
    BmmData data(c);
    Result<BmmOp> op = BmmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok());
    ASSERT_TRUE(op->pack(c, data).ok());
    const std::vector<uint32_t> expected = output_bits(*op, c, data);
    for (const BatchForm form : {BatchForm::kMatrices, BatchForm::kHeads}) {
      for (size_t offset = 1; offset < 64; offset += 5) {
        BmmCase other = c;
        other.a_form = other.b_form = other.c_form = form;
        other.a_pad = other.c_pad = static_cast<int64_t>(offset);
        other.gap = 1;
        other.offset = offset;
        BmmData moved(other);
        for (int64_t i = 0; i < c.problem.batch; ++i) {
          const auto copy = [i](const TestBatch& from, TestBatch& to) {
            const BatchView v = from.view();
            for (int64_t r = 0; r < v.rows; ++r) {
              for (int64_t j = 0; j < v.cols; ++j) to.set(i, r, j, from.get(i, r, j));
            }
          };
          copy(data.a, moved.a);
          if (c.plain()) copy(data.b, moved.b);
        }
        EXPECT_EQ(output_bits(*op, other, moved), expected) << to_string(other);
      }
    }
  }
}

TEST_P(BmmInvarianceTest, AnyScratchContents) {
  for (uint64_t variant = 0; variant < 100; ++variant) {
    BmmCase c = random_bmm(variant);
    c.problem.b = b();
    BmmData data(c);
    Result<BmmOp> op = BmmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok());
    ASSERT_TRUE(op->pack(c, data).ok());
    const std::vector<uint32_t> first = output_bits(*op, c, data, 0x5A);
    EXPECT_EQ(output_bits(*op, c, data, 0xA5), first) << to_string(c);
    EXPECT_EQ(output_bits(*op, c, data, 0xFF), first) << to_string(c);
  }
}

TEST_P(BmmInvarianceTest, OnePlanWithChangingBatchAndRows) {
  BmmCase c = make_bmm(b(), 9, 40, 33, 65);
  c.b_form = BatchForm::kShared;
  BmmData data(c);
  Result<BmmOp> op = BmmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok());
  ASSERT_TRUE(op->pack(c, data).ok());
  ASSERT_TRUE(op->run(op->args(c, data)).ok());
  std::vector<std::vector<uint32_t>> all;
  for (int64_t i = 0; i < 9; ++i) all.push_back(element_bits(data.c.matrix(i)));
  for (const auto& [batch, m] : {std::pair<int64_t, int64_t>{1, 40},
                                 {9, 1},
                                 {0, 5},
                                 {3, 17},
                                 {5, 0},
                                 {2, 33},
                                 {9, 4},
                                 {1, 1},
                                 {7, 16}}) {
    data.c.set_all(-1);
    BmmArgs args = op->args(c, data);
    args.a.batch = args.c.batch = batch;
    args.a.rows = args.c.rows = m;
    if (c.plain()) args.b.batch = batch;
    ASSERT_TRUE(op->run(args).ok());
    for (int64_t i = 0; i < 9; ++i) {
      const std::vector<uint32_t> bits = element_bits(data.c.matrix(i));
      const int64_t rows = i < batch ? m : 0;
      for (int64_t at = 0; at < 40 * 33; ++at) {
        const auto index = static_cast<size_t>(at);
        ASSERT_EQ(bits[index], at < rows * 33 ? all[static_cast<size_t>(i)][index] : 0xbf80u)
            << batch << " " << m << " " << i << " " << at;
      }
    }
  }
}

TEST_P(BmmInvarianceTest, OnePlanFromEightThreadsAtOnce) {
  auto pool = PersistentPool::create(2);
  ASSERT_TRUE(pool.ok());
  const Context threaded = context_at(isa(), pool->get());
  for (const Context* context : {&ctx(), &threaded}) {
    const BmmCase c = make_bmm(b(), 4, 5, 133, 140);
    BmmData data(c);
    Result<BmmOp> op = BmmOp::create(*context, c);
    ASSERT_TRUE(op.ok());
    ASSERT_TRUE(op->pack(c, data).ok());
    const std::vector<uint32_t> expected = output_bits(*op, c, data);
    std::atomic<int> wrong{0};
    std::vector<std::thread> callers;
    for (int t = 0; t < 8; ++t) {
      callers.emplace_back([&] {
        BmmData own(c);
        for (int i = 0; i < 10; ++i) {
          own.c.set_all(0);
          if (output_bits(*op, c, own) != expected) ++wrong;
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(wrong, 0);
  }
}

TEST_P(BmmInvarianceTest, HostMxcsrIsNeitherUsedNorChanged) {
  auto pool = PersistentPool::create(2);
  ASSERT_TRUE(pool.ok());
  const Context threaded = context_at(isa(), pool->get());
  for (const Context* context : {&ctx(), &threaded}) {
    BmmCase c = make_bmm(b(), 5, 6, 140, 150);
    c.fill = Fill::kExtreme;
    BmmData data(c);
    Result<BmmOp> op = BmmOp::create(*context, c);
    ASSERT_TRUE(op.ok());
    ASSERT_TRUE(op->pack(c, data).ok());
    const std::vector<uint32_t> expected = output_bits(*op, c, data);
    for (const unsigned mxcsr : kHostMxcsr) {
      data.c.set_all(0);
      const Status status = run_with_mxcsr(mxcsr, [&] { return op->run(op->args(c, data)); });
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(element_bits(data.c), expected) << mxcsr;
    }
  }
}

TEST_P(BmmInvarianceTest, AnyBlocking) {
  Rng rng(5);
  const std::vector<BmmCase> cases = varied_cases(b());
  const std::vector<std::vector<uint32_t>> expected = bits_of_all(ctx(), cases);
  const bool tiles = isa().level == IsaLevel::kAmx;
  // Of four panels, in every family.
  const int64_t most_rows = b() == BmmOperand::kE4M3 ? 3 : 5;
  for (int i = 0; i < 20; ++i) {
    GemmBlocking blocking;
    blocking.mr = static_cast<int32_t>(tiles ? 16 * rng.in(1, 2) : rng.in(1, most_rows));
    blocking.nr = static_cast<int32_t>(rng.in(1, tiles ? 64 / blocking.mr : 4));
    blocking.mc = rng.in(1, 4) * blocking.mr;
    blocking.nc = 16 * blocking.nr;
    blocking.kc = 64 * rng.in(0, 8);
    blocking.prefetch_bytes = static_cast<int32_t>(64 * rng.in(0, 32));
    const OneBlocking tuning(blocking);
    const Context tuned = context_at(isa(), nullptr, &tuning);
    const Result<BmmOp> op = BmmOp::create(tuned, cases[0]);
    ASSERT_TRUE(op.ok());
    EXPECT_EQ(op->op().explain().find("refused: m"), std::string::npos) << op->op().explain();
    expect_same_bits_with_blocking(isa(), blocking, cases, expected);
  }
}

TEST_P(BmmInvarianceTest, WithAndWithoutAvx512Bf16) {
  std::vector<BmmCase> cases = varied_cases(b());
  cases.push_back(make_bmm(b(), 2, 1200, 17, 9));
  expect_same_bits_without_avx512_bf16(isa(), cases);
}

// w_kc and w_vc of a head, and every later call, are one thread's.
TEST_P(BmmInvarianceTest, AHeadStaysWithItsThread) {
  for (const int threads : {2, 3, 4}) {
    WatchingPool pool(threads);
    const Context context = context_at(isa(), &pool);
    std::vector<std::map<int64_t, int>> owners;
    for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 128, 64},
                                  {1, 64, 128},
                                  {4, 128, 64},
                                  {20, 128, 64}}) {
      const BmmCase c = make_bmm(b(), 12 * threads, m, n, k);
      BmmData data(c);
      Result<BmmOp> op = BmmOp::create(context, c);
      ASSERT_TRUE(op.ok());
      pool.after = nullptr;
      ASSERT_TRUE(op->pack(c, data).ok());
      std::map<int64_t, int> owner;
      data.c.set_all(-1e30);
      const double untouched = data.c.get(0, 0, 0);
      pool.after = [&](int tid) {
        for (int64_t i = 0; i < c.problem.batch; ++i) {
          const bool whole = data.c.get(i, m - 1, n - 1) != untouched;
          if (whole && owner.count(i) == 0) owner[i] = tid;
        }
      };
      ASSERT_TRUE(op->run(op->args(c, data)).ok());
      EXPECT_EQ(owner.size(), static_cast<size_t>(c.problem.batch));
      owners.push_back(owner);
    }
    for (const auto& owner : owners) EXPECT_EQ(owner, owners[0]);
    std::set<int> used;
    for (const auto& [matrix, tid] : owners[0]) used.insert(tid);
    EXPECT_EQ(used.size(), static_cast<size_t>(threads));
  }
}

// Threads may not only give the right bits together: each element is one thread's.
TEST_P(BmmInvarianceTest, NoElementIsComputedTwice) {
  for (const int threads : {2, 5, 7}) {
    for (const auto& [batch, m] : {std::pair<int64_t, int64_t>{3, 2}, {1, 40}, {17, 1}}) {
      WatchingPool pool(threads);
      const Context context = context_at(isa(), &pool);
      const BmmCase c = make_bmm(b(), batch, m, 150, 701);
      BmmData data(c);
      Result<BmmOp> op = BmmOp::create(context, c);
      ASSERT_TRUE(op.ok());
      ASSERT_TRUE(op->pack(c, data).ok());
      data.c.set_all(-1e30);
      const std::vector<uint32_t> untouched = element_bits(data.c);
      std::vector<int> writers(untouched.size());
      pool.after = [&](int) {
        const std::vector<uint32_t> bits = element_bits(data.c);
        for (size_t i = 0; i < bits.size(); ++i) writers[i] += bits[i] != untouched[i] ? 1 : 0;
        data.c.set_all(-1e30);
      };
      ASSERT_TRUE(op->run(op->args(c, data)).ok());
      EXPECT_EQ(writers, std::vector<int>(untouched.size(), 1)) << threads << " " << to_string(c);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, BmmInvarianceTest, every_bmm(), bmm_test_name);

}  // namespace
}  // namespace quern::test
