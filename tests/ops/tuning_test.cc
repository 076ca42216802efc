// A tuning source may change speed, never bits, and what it says wrongly is refused with a reason.
#include "quern/tuning.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "quern/bf16_gemm.h"
#include "quern/int8_gemm.h"
#include "tests/support/isa_list.h"

namespace quern {
namespace {

class OneAnswer : public TuningSource {
 public:
  explicit OneAnswer(GemmBlocking answer) : answer_(answer) {}
  bool lookup(const Problem& problem, GemmBlocking* out) const noexcept override {
    asked.insert(problem.m);
    *out = answer_;
    return true;
  }
  const char* name() const noexcept override { return "test"; }
  mutable std::set<int64_t> asked;

 private:
  GemmBlocking answer_;
};

struct RunResult {
  std::vector<float> c;
  std::string explain;
};

class Tuning : public test::IsaTest {
 protected:
  bool tiles() const { return GetParam().level == IsaLevel::kAmx; }
  /// A legal register block of the level.
  GemmBlocking block() const {
    return tiles() ? GemmBlocking{32, 2, 64, 32, 0, 0} : GemmBlocking{6, 4, 64, 64, 0, 0};
  }
  template <typename T, typename V>
  GemmBlocking with(T GemmBlocking::*field, V value) const {
    GemmBlocking changed = block();
    changed.*field = static_cast<T>(value);
    return changed;
  }
  RunResult run_int8(const TuningSource* source) const;
};

RunResult Tuning::run_int8(const TuningSource* source) const {
  constexpr int kM = 23, kN = 150, kK = 700;
  Int8GemmDesc desc;
  desc.n = kN;
  desc.k = kK;
  desc.c = DType::kF32;
  const auto gemm = Int8Gemm::create(test::context_at(GetParam(), nullptr, source), desc);
  EXPECT_TRUE(gemm.ok());
  std::vector<int8_t> codes(kN * kK);
  std::vector<bfloat16> a(kM * kK);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int8_t>(i * 2654435761u >> 7);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = bfloat16::from_float(static_cast<float>(static_cast<int>(i * 40503u % 2000) - 1000));
  }
  const std::vector<float> scale(kN, 0.01f);
  const auto w = gemm->pack({matrix_view(codes.data(), kN, kK), vector_view(scale.data(), kN)});
  RunResult result{std::vector<float>(kM * kN), gemm->explain()};
  std::vector<std::byte> scratch(gemm->scratch_bytes(kM));
  const Status status = gemm->run({.a = matrix_view(a.data(), kM, kK),
                                   .weights = &*w,
                                   .c = mutable_matrix_view(result.c.data(), kM, kN)},
                                  scratch);
  EXPECT_TRUE(status.ok()) << status.message();
  return result;
}

TEST_P(Tuning, LegalEntriesChangeNoBitAndAreNamed) {
  const RunResult plain = run_int8(nullptr);
  EXPECT_NE(plain.explain.find("compiled-in defaults"), std::string::npos);
  const int step = tiles() ? 16 : 1;
  const std::vector<int> rows = tiles() ? std::vector<int>{1, 2} : std::vector<int>{1, 2, 5, 6};
  for (const int mr : rows) {
    for (int64_t kc : {0, 64, 256, 640}) {
      for (int64_t mc : {6, 7, 64}) {
        for (int prefetch : {0, 64, 2048}) {
          const int nr = block().nr;
          const OneAnswer source({mr * step, nr, mc * step, 16 * nr, kc, prefetch});
          const RunResult tuned = run_int8(&source);
          ASSERT_EQ(std::memcmp(tuned.c.data(), plain.c.data(), plain.c.size() * 4), 0)
              << "mr " << mr << " kc " << kc << " mc " << mc;
          EXPECT_NE(tuned.explain.find("(test)"), std::string::npos) << tuned.explain;
        }
      }
    }
  }
}

TEST_P(Tuning, IllegalEntriesAreRefusedWithTheRule) {
  const RunResult plain = run_int8(nullptr);
  for (const GemmBlocking& bad :
       {with(&GemmBlocking::mr, 0), with(&GemmBlocking::mr, 99), with(&GemmBlocking::kc, 63),
        with(&GemmBlocking::prefetch_bytes, -64), with(&GemmBlocking::mc, -1),
        with(&GemmBlocking::nc, 0), with(&GemmBlocking::nr, 5),
        with(tiles() ? &GemmBlocking::mr : &GemmBlocking::nr, tiles() ? 31 : 0)}) {
    const OneAnswer source(bad);
    const RunResult tuned = run_int8(&source);
    EXPECT_EQ(std::memcmp(tuned.c.data(), plain.c.data(), plain.c.size() * 4), 0);
    EXPECT_NE(tuned.explain.find("tuning entry refused: "), std::string::npos) << tuned.explain;
  }
}

TEST_P(Tuning, AskedOnceForEachBucketAtCreateAndNeverAtRun) {
  const OneAnswer source(block());
  run_int8(&source);
  EXPECT_EQ(source.asked.size(), 24u);
  EXPECT_EQ(source.asked.count(1), 1u);
  EXPECT_EQ(source.asked.count(16), 1u);
  EXPECT_EQ(source.asked.count(32), 1u);
}

INSTANTIATE_TEST_SUITE_P(Ops, Tuning, ::testing::ValuesIn(test::isas_to_test()), test::isa_name);

}  // namespace
}  // namespace quern
