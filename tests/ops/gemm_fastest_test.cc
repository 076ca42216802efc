// Invariance::kFastest: up to four rows a plan may have the bits of the avx512 family, more rows
// have those of the level's own (quern/epilogue.h). Everything else that is said of plans holds for
// both.
#include <algorithm>
#include <utility>

#include "jit/code_memory.h"
#include "ops/context_impl.h"
#include "tests/ops/gemm_fixture.h"
#include "tests/ops/other_maker.h"
#include "tests/ops/test_pools.h"

namespace quern::test {
namespace {

constexpr int64_t kFewRows = 4;  // ops/README.md

class GemmFastestTest : public GemmTest {
 protected:
  /// Weights too large for the call to stay on one thread.
  GemmCase shape() const {
    GemmCase c = make_case(kind(), "m:40/n:768/k:141");
    c.problem.epilogue.bias = true;
    c.problem.c = DType::kF32;
    return c;
  }
  /// The first `rows` rows of C, computed by a plan of ctx with scratch that ends at a guard page.
  std::vector<uint32_t> bits(const Context& ctx, Invariance invariance, GemmData& data,
                             int64_t rows) const {
    GemmCase c = shape();
    c.invariance = invariance;
    Result<GemmOp> op = GemmOp::create(ctx, c);
    EXPECT_TRUE(op.ok()) << op.status().message();
    if (!op.ok() || !op->pack(data).ok()) return {};
    data.c.set_all(0);
    // NaN in every type, so that padding which nobody cleared shows where zeros multiply it.
    const Status status = op->run(row_block(args_of(c, data), 0, rows), 0xFF);
    EXPECT_TRUE(status.ok()) << status.message();
    std::vector<uint32_t> all = element_bits(data.c.view());
    all.resize(static_cast<size_t>(rows * c.problem.n));
    return all;
  }
  bool float_sums() const { return !shape().integer_sums(); }
  /// The level's machine, made by `vendor`, with or without AVX512-BF16.
  Context context_of(bool bf16, uint32_t vendor, ThreadPool* pool = nullptr) const {
    ContextOptions options;
    options.max_isa = isa().level;
    options.pool = pool;
    const OtherMaker cpu(cpu_at(isa()), bf16, vendor);
    const auto made = make_context(options, cpu, jit::system_memory());
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? *made : Context();
  }
  /// The kernel that a kFastest plan has for few rows.
  std::string few_rows_kernel(const Context& ctx) const {
    GemmCase c = shape();
    c.invariance = Invariance::kFastest;
    const Result<GemmOp> op = GemmOp::create(ctx, c);
    if (!op.ok()) return op.status().message();
    const std::string text = op->explain();
    const size_t line = text.find("\n  m 1..");
    const size_t kernel = text.find("kernel ", line);
    if (line == std::string::npos || kernel == std::string::npos) return text;
    return text.substr(kernel + 7, text.find(' ', kernel + 7) - kernel - 7);
  }
};

TEST_P(GemmFastestTest, FewRowsHaveTheBitsOfAvx512AndTheRestThoseOfTheLevel) {
  GemmData data(shape());
  if (shape().is_fp4()) {  // sums of 32 codes and activations of one size are exact in any order
    Rng rng(1);
    fill_random(data.a, rng, 12);
  }
  const Context& below = shared_context(isas_to_test().front());
  for (const int64_t m : {1, 2, 3, 4, 5, 6, 16, 17, 40}) {
    const std::vector<uint32_t> avx512 = bits(below, Invariance::kStrict, data, m);
    const std::vector<uint32_t> strict = bits(ctx(), Invariance::kStrict, data, m);
    const bool tells_apart = float_sums() && isa().level > IsaLevel::kAvx512;
    EXPECT_EQ(strict != avx512, tells_apart) << "m " << m << ": the data must tell families apart";
    // Tiles of MXFP4's groups have an avx512 kernel of their bits, which needs no kFastest.
    const bool stands_in = shape().problem.fp4 == Fp4Format::kMxfp4;
    EXPECT_EQ(bits(ctx(), Invariance::kFastest, data, m),
              m <= kFewRows && !stands_in ? avx512 : strict)
        << "m " << m;
  }
}

// Where bf16 dot products are slow (Intel) or missing, few rows are widened to f32 in scratch that
// more rows do not need; the bits stay.
TEST_P(GemmFastestTest, MachinesThatAreSlowAtBf16Dots) {
  GemmData data(shape());
  const std::vector<uint32_t> few = bits(ctx(), Invariance::kFastest, data, kFewRows);
  const std::vector<uint32_t> more = bits(ctx(), Invariance::kFastest, data, kFewRows + 1);
  const bool native = ctx().isa_report().avx512_bf16;
  const std::string family = float_sums() ? "bf16_gemm" : "int8_gemm";
  for (const auto& [bf16, vendor] : {std::pair{true, kAuthenticAmd}, std::pair{true, kGenuineIntel},
                                     std::pair{false, kAuthenticAmd}}) {
    if (bf16 && !native) continue;
    const Context other = context_of(bf16, vendor);
    const bool fmas = float_sums() && (!bf16 || vendor == kGenuineIntel);
    const std::string kernel = few_rows_kernel(other);
    // Weights in groups decode to bf16 with or without dot products: their kernels have one name.
    if (!is_int4() && !is_fp8() && !is_fp4()) {
      EXPECT_EQ(kernel.rfind(family + (fmas ? "_fma.avx512." : ".avx512."), 0), 0u) << kernel;
    }
    EXPECT_EQ(bits(other, Invariance::kFastest, data, kFewRows), few);
    EXPECT_EQ(bits(other, Invariance::kFastest, data, kFewRows + 1), more);
  }
}

// scratch_bytes(m) suffices for m rows, which bits() runs with no byte more, and for fewer.
TEST_P(GemmFastestTest, ScratchForEveryNumberOfRows) {
  GemmData data(shape());
  for (const uint32_t vendor : {kAuthenticAmd, kGenuineIntel}) {
    for (const int threads : {1, 3, 8}) {
      ScriptedPool pool(threads);
      const Context ctx = context_of(GemmTest::ctx().isa_report().avx512_bf16, vendor, &pool);
      // Deep, too, where the few rows of every thread need more than its tiles.
      for (const int64_t k : {shape().problem.k, int64_t{6001}}) {
        GemmCase c = shape();
        c.invariance = Invariance::kFastest;
        c.problem.k = k;
        const Result<GemmOp> op = GemmOp::create(ctx, c);
        ASSERT_TRUE(op.ok()) << op.status().message();
        for (int64_t m = 1; m <= 40; ++m) {
          EXPECT_GE(op->scratch_bytes(m), op->scratch_bytes(m - 1)) << "m " << m << " k " << k;
        }
      }
      const std::vector<uint32_t> all = bits(ctx, Invariance::kFastest, data, 40);
      for (const int64_t m : {1, 3, 4, 5, 16, 17, 33}) {
        const std::vector<uint32_t> got = bits(ctx, Invariance::kFastest, data, m);
        const bool same = std::equal(got.begin(), got.end(), all.begin());
        EXPECT_TRUE(same || (m <= kFewRows && float_sums() && isa().level > IsaLevel::kAvx512))
            << "m " << m << ", " << threads << " threads";
        EXPECT_EQ(got, bits(GemmTest::ctx(), Invariance::kFastest, data, m)) << "m " << m;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, GemmFastestTest, every_gemm(), gemm_test_name);

}  // namespace
}  // namespace quern::test
