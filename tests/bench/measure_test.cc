#include "bench/measure.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <array>
#include <cstring>

#include "bench/op_case.h"
#include "bench/plan_text.h"
#include "bench/table.h"

namespace quern::bench {
namespace {

MeasureOptions short_options(bool verify) {
  MeasureOptions options;
  options.verify = verify;
  options.budget = {0.001, 3, 0};
  options.tries = 1;
  return options;
}

Problem problem(const char* text) {
  return *parse_problem(text);
}

/// An op that needs no machine code: its result is a counter of nothing.
class FakeCase : public OpCase {
 public:
  Status run(int64_t call) override {
    ++calls;
    if (call >= fail_from) return Status(StatusCode::kInternal, "it broke");
    if (call >= drift_from) output_[0] = std::byte{1};
    return {};
  }
  CheckResult check() const override { return {check_ok, true, 4, 8, "C[0, 0] = 1, reference 2"}; }
  std::span<const std::byte> output() const override { return output_; }
  Work work() const override { return {1000, 100, Peak::kInt8, from_memory}; }
  std::string explain() const override { return explanation; }
  int64_t copies() const override { return 1; }

  std::string explanation = "fake.kernel";
  int calls = 0;
  int64_t fail_from = 1 << 30;
  int64_t drift_from = 1 << 30;
  bool check_ok = true;
  bool from_memory = false;

 private:
  std::array<std::byte, 4> output_{};
};

/// Counts and can die at a given block.
class FakePeer : public Peer {
 public:
  std::string name() const override { return "fake"; }
  bool setup(const Problem&) override { return has_it; }
  std::optional<Stats> block(const BlockBudget&) override {
    if (++blocks > dies_after) return std::nullopt;
    return Stats{1000, 1, 10};
  }
  std::string kernel() const override { return "peer.kernel"; }
  std::string isa_cap() const override { return "AVX"; }
  std::string note() const override { return has_it ? "peer process died" : "no counterpart"; }
  pid_t pid() const override { return 0; }

  bool has_it = true;
  int blocks = 0;
  int dies_after = 1 << 30;
};

Row measure_fake(const MeasureOptions& options, Peer* peer, void (*change)(FakeCase*),
                 const char* text = "int8_gemm/m:1/n:16/k:16/thr:1") {
  ContextSet contexts;
  Measurer measurer(options, &contexts, peer, "none asked for",
                    [&](const Problem&, const CaseEnv&) {
                      auto fake = std::make_unique<FakeCase>();
                      change(fake.get());
                      return fake;
                    });
  return measurer.measure(problem(text));
}

TEST(Measure, ReadsMemoryBesideEachBlockOfARowThatDoes) {
  MeasureOptions options = short_options(false);
  int reads = 0;
  options.memory_now = [&](int threads) {
    EXPECT_EQ(threads, 1);
    return 10.0 * ++reads;
  };
  const Row cached = measure_fake(options, nullptr, [](FakeCase*) {});
  EXPECT_EQ(reads, 0);
  EXPECT_EQ(cached.work.memory_rate, 0);
  const Row row = measure_fake(options, nullptr, [](FakeCase* c) { c->from_memory = true; });
  // Once a block, perhaps in a second try of a disturbed row: the median of consecutive tens.
  EXPECT_EQ(reads % row.alternations, 0);
  EXPECT_GE(row.work.memory_rate, 10.0 * (row.alternations + 1) / 2);
  EXPECT_GT(row.work.memory_mad, 0);
}

TEST(Measure, AlternatesAtLeastFiveTimesAndReportsMedians) {
  FakePeer peer;
  const Row row = measure_fake(short_options(true), &peer, [](FakeCase*) {});
  EXPECT_EQ(row.error, "");
  EXPECT_EQ(row.verified, Verified::kEqual);
  EXPECT_EQ(row.checked, "4 of 8 elements");
  EXPECT_EQ(row.kernel, "fake.kernel");
  EXPECT_GE(row.alternations, 5);
  EXPECT_EQ(peer.blocks, row.alternations);
  EXPECT_GT(row.us.median, 0);
  EXPECT_GE(row.us.count, 15);
  EXPECT_EQ(row.peer.us.median, 1000);
  EXPECT_GT(row.peer.ratio, 1);
  EXPECT_EQ(row.peer.kernel, "peer.kernel");
  EXPECT_EQ(row.peer.isa_cap, "AVX");
}

TEST(Measure, AWrongResultIsNeverTimed) {
  FakePeer peer;
  const Row row =
      measure_fake(short_options(true), &peer, [](FakeCase* c) { c->check_ok = false; });
  EXPECT_EQ(row.verified, Verified::kFailed);
  EXPECT_EQ(row.error, "wrong result: C[0, 0] = 1, reference 2");
  EXPECT_EQ(row.us.count, 0);
  EXPECT_EQ(peer.blocks, 0);
}

TEST(Measure, WithoutVerifyTheTableSaysSo) {
  const Row row = measure_fake(short_options(false), nullptr, [](FakeCase*) {});
  EXPECT_EQ(row.verified, Verified::kNotAsked);
  EXPECT_EQ(row.peer.note, "none asked for");
}

TEST(Measure, ATimedCallWithOtherBitsIsFound) {
  const Row row =
      measure_fake(short_options(true), nullptr, [](FakeCase* c) { c->drift_from = 10; });
  EXPECT_EQ(row.verified, Verified::kFailed);
  EXPECT_NE(row.error.find("another result"), std::string::npos) << row.error;
  EXPECT_EQ(row.us.count, 0);
}

TEST(Measure, AFailingCallIsAnError) {
  const Row row =
      measure_fake(short_options(false), nullptr, [](FakeCase* c) { c->fail_from = 5; });
  EXPECT_NE(row.error.find("it broke"), std::string::npos);
  EXPECT_EQ(row.us.count, 0);
}

TEST(Measure, APeerThatDiesLeavesOurNumbers) {
  FakePeer peer;
  peer.dies_after = 2;
  const Row row = measure_fake(short_options(true), &peer, [](FakeCase*) {});
  EXPECT_EQ(row.error, "");
  EXPECT_GT(row.us.median, 0);
  EXPECT_EQ(row.peer.us.count, 0);
  EXPECT_EQ(row.peer.note, "peer process died");
  EXPECT_EQ(peer.blocks, 3);  // it is not asked again
}

TEST(Measure, APeerWithoutTheProblemSaysWhy) {
  FakePeer peer;
  peer.has_it = false;
  const Row row = measure_fake(short_options(true), &peer, [](FakeCase*) {});
  EXPECT_EQ(row.error, "");
  EXPECT_EQ(row.peer.note, "no counterpart");
  EXPECT_EQ(peer.blocks, 0);
}

const char* const kAvx512Plan =
    "int8_gemm/n:16/k:16\n"
    "  amx: refused: the tiles are being polished\n"
    "  avx512: chosen\n"
    "  kernel int8_gemm.avx512.x\n";

TEST(Measure, TheLevelOfARowIsThatOfTheKernel) {
  const Row row = measure_fake(short_options(false), nullptr,
                               [](FakeCase* c) { c->explanation = kAvx512Plan; });
  EXPECT_EQ(row.error, "");
  EXPECT_EQ(row.problem.isa, IsaLevel::kAvx512);
  EXPECT_EQ(row.work.level, IsaLevel::kAvx512);
  EXPECT_EQ(to_string(row.problem), "int8_gemm/m:1/n:16/k:16/isa:avx512/thr:1");
}

TEST(Measure, ALevelThatDidNotRunIsRefusedWithTheReason) {
  const Row row = measure_fake(
      short_options(false), nullptr, [](FakeCase* c) { c->explanation = kAvx512Plan; },
      "int8_gemm/m:1/n:16/k:16/isa:amx/thr:1");
  EXPECT_EQ(row.error,
            "isa:amx did not run because: the tiles are being polished (the plan chose "
            "int8_gemm.avx512.x)");
  EXPECT_EQ(row.kernel, "");
  EXPECT_EQ(row.us.count, 0);
  EXPECT_EQ(row.problem.isa, IsaLevel::kAmx);  // as it was asked for
}

// A plan at level amx may leave few rows to avx512: asked for amx, such a row is measured, and is
// one of avx512.
TEST(Measure, ARowOfAPlanWithTwoFamiliesHasTheLevelOfTheOneThatRan) {
  const char* const plan =
      "int8_gemm/n:16/k:16/isa:amx\n"
      "  amx: chosen\n"
      "  avx512: chosen for m 1..4\n"
      "  kernel int8_gemm.avx512.x and its tails\n"
      "  kernel int8_gemm.amx.y and its tails\n"
      "  m 1..4: mr 6, kernel int8_gemm.avx512.x (compiled-in defaults)\n"
      "  m 5..: mr 16, kernel int8_gemm.amx.y (compiled-in defaults)\n";
  static const char* explanation = plan;
  const auto row_of = [](const char* text) {
    return measure_fake(
        short_options(false), nullptr, [](FakeCase* c) { c->explanation = explanation; }, text);
  };
  const Row few = row_of("int8_gemm/m:4/n:16/k:16/isa:amx/thr:1");
  EXPECT_EQ(few.error, "");
  EXPECT_EQ(few.kernel, "int8_gemm.avx512.x");
  EXPECT_EQ(to_string(few.problem), "int8_gemm/m:4/n:16/k:16/isa:avx512/thr:1");
  EXPECT_EQ(few.work.level, IsaLevel::kAvx512) << "held to the roof of what ran";
  const Row more = row_of("int8_gemm/m:5/n:16/k:16/isa:amx/thr:1");
  EXPECT_EQ(more.error, "");
  EXPECT_EQ(more.kernel, "int8_gemm.amx.y");
  EXPECT_EQ(to_string(more.problem), "int8_gemm/m:5/n:16/k:16/isa:amx/thr:1");
  EXPECT_EQ(more.work.level, IsaLevel::kAmx);
  // Nobody allowed the avx512 kernel here.
  const std::string without =
      std::string(plan).replace(std::string(plan).find(" for m 1..4"), 11, "");
  explanation = without.c_str();
  const Row other = row_of("int8_gemm/m:4/n:16/k:16/isa:amx/thr:1");
  EXPECT_NE(other.error.find("isa:amx did not run"), std::string::npos) << other.error;
}

TEST(Measure, ARefusedProblemIsARowWithTheReason) {
  ContextSet contexts;
  Measurer measurer(short_options(true), &contexts, nullptr, "none asked for");
  Problem unknown = problem("int8_gemm/m:1/n:16/k:16/thr:1");
  unknown.op = "int3_gemm";
  EXPECT_NE(measurer.measure(unknown).error.find("int3_gemm"), std::string::npos);
}

// ---- the real ops, right and wrong
// -----------------------------------------------------------------

/// Adds one unit in the last place to the last element of C.
void spoil(const MutableMatrixView& c) {
  const int64_t at = (c.rows - 1) * c.row_stride + c.cols - 1;
  if (c.dtype == DType::kF32) {
    uint32_t* bits = static_cast<uint32_t*>(c.data) + at;
    ++*bits;
  } else {
    uint16_t* bits = static_cast<uint16_t*>(c.data) + at;
    ++*bits;
  }
}

class RealOps : public testing::Test {
 protected:
  void SetUp() override {
    if (contexts_.plain().isa() == IsaLevel::kNone) {
      GTEST_SKIP() << "no kernel can run at level " << to_string(contexts_.plain().isa());
    }
  }
  Row measure(const char* text, const CaseFactory& factory = make_case) {
    Measurer measurer(short_options(true), &contexts_, nullptr, "none asked for", factory);
    return measurer.measure(problem(text));
  }
  ContextSet contexts_;
};

TEST_F(RealOps, RightResultsPass) {
  for (const char* text : {"int8_gemm/m:3/n:33/k:65/thr:2",
                           "int8_gemm/m:3/n:33/k:65/c:f32/epi:bias+residual/thr:1",
                           "int8_gemm/m:3/n:33/k:65/epi:bias+silu_mul+residual/thr:2",
                           "int8_gemm/m:2/n:17/k:40/a:s8/act:s8/thr:1",
                           "int8_gemm/m:5/n:18/k:66/act:bf16/thr:1",
                           "int8_gemm/m:5/n:18/k:66/a:f32/thr:1",
                           "bf16_gemm/m:7/n:40/k:129/thr:2",
                           "bf16_gemm/m:7/n:40/k:129/c:f32/epi:bias+silu_mul/thr:1",
                           "int4_gemm/m:3/n:33/k:65/g:32/thr:2",
                           "int4_gemm/m:1/n:33/k:65/g:16/z:u4/s:f32/order:1/thr:1",
                           "int4_gemm/m:5/n:200/k:300/g:128/z:f32/s:bf16/epi:bias/thr:2",
                           "int4_gemm/m:7/n:40/k:129/g:24/act:bf16/z:u4/thr:2",
                           "int4_gemm/m:2/n:40/k:128/g:128/act:bf16/order:1/epi:silu_mul/thr:1",
                           "fp4_gemm/m:3/n:33/k:65/thr:2",
                           "fp4_gemm/m:40/n:200/k:300/c:f32/epi:silu_mul/thr:1",
                           "fp8_gemm/m:3/n:33/k:65/bn:8/bk:32/thr:2",
                           "fp8_gemm/m:1/n:200/k:300/bn:128/bk:128/w:e5m2/epi:bias/thr:1",
                           "fp8_gemm/m:300/n:300/k:300/bn:1/epi:silu_mul/thr:2",
                           "fp8_gemm/m:20/n:300/k:300/c:f32/thr:1",
                           "bf16_gemm/m:300/n:300/k:300/thr:2",
                           "bmm/b:3/m:7/n:40/k:129/thr:2",
                           "bmm/b:9/m:2/n:17/k:40/w:s8/thr:1",
                           "bmm/b:3/m:7/n:17/k:40/w:e4m3/thr:2",
                           "bmm/b:2/m:2/n:17/k:40/w:nk/c:f32/thr:1",
                           "bmm/b:2/m:2/n:17/k:40/w:kn/thr:2",
                           "bmm/b:17/m:70/n:96/k:200/thr:2",
                           "quantize_rows/m:5/k:129/thr:2",
                           "quantize_rows/m:5/k:129/g:32/a:f32/thr:1"}) {
    const Row row = measure(text);
    EXPECT_EQ(row.error, "") << text;
    // Sums of integers are exact; a float sum, or SiLU, has a bound.
    const std::string name = text;
    const bool exact = name.find("bf16_gemm") != 0 && name.find("fp8_gemm") != 0 &&
                       name.find("fp4_gemm") != 0 && name.find("bmm") != 0 &&
                       name.find("act:bf16") == std::string::npos &&
                       name.find("silu_mul") == std::string::npos;
    EXPECT_EQ(row.verified, exact ? Verified::kEqual : Verified::kWithinBound) << text;
    // amx where the machine has it: what the plan chose for these rows.
    EXPECT_NE(level_of_kernel(row.kernel), IsaLevel::kNone) << text << ": " << row.kernel;
    EXPECT_EQ(level_of_kernel(row.kernel), row.problem.isa) << text << ": " << row.kernel;
  }
}

TEST_F(RealOps, OneUnitInTheLastPlaceIsCaughtInInt8) {
  const Row row = measure("int8_gemm/m:3/n:33/k:65/thr:1", [](const Problem& p, const CaseEnv& c) {
    return make_int8_case(p, c,
                          [](const Int8Gemm& op, const Int8GemmArgs& args, Span<std::byte> s) {
                            const Status status = op.run(args, s);
                            spoil(args.c);
                            return status;
                          });
  });
  EXPECT_EQ(row.verified, Verified::kFailed);
  EXPECT_NE(row.error.find("C[2, 32]"), std::string::npos) << row.error;
  EXPECT_EQ(
      rows_table({row}, {}, "", TextTable::Style::kMarkdown).find(" us |") != std::string::npos,
      true);
  EXPECT_EQ(row.us.count, 0);
}

TEST_F(RealOps, AForgottenColumnIsCaughtInBf16) {
  const Row row = measure("bf16_gemm/m:3/n:33/k:65/thr:1", [](const Problem& p, const CaseEnv& c) {
    return make_bf16_case(p, c,
                          [](const Bf16Gemm& op, const Bf16GemmArgs& args, Span<std::byte> s) {
                            const Status status = op.run(args, s);
                            static_cast<bfloat16*>(args.c.data)[32] = bfloat16{};
                            return status;
                          });
  });
  EXPECT_EQ(row.verified, Verified::kFailed);
  EXPECT_NE(row.error.find("C[0, 32]"), std::string::npos) << row.error;
}

TEST_F(RealOps, TwoHeadsThatChangedPlacesAreCaughtInBmm) {
  const Row row = measure("bmm/b:9/m:3/n:33/k:65/thr:1", [](const Problem& p, const CaseEnv& c) {
    return make_bmm_case(p, c, [](const Bmm& op, const BmmArgs& args, Span<std::byte> s) {
      const Status status = op.run(args, s);
      auto* last = static_cast<bfloat16*>(args.c.data) + 8 * args.c.batch_stride;
      std::swap_ranges(last, last + 33, last - args.c.batch_stride);
      return status;
    });
  });
  EXPECT_EQ(row.verified, Verified::kFailed);
  EXPECT_NE(row.error.find("matrix 8: C[0, "), std::string::npos) << row.error;
}

TEST_F(RealOps, AWrongScaleIsCaughtInQuantizeRows) {
  const Row row = measure("quantize_rows/m:3/k:65/thr:1", [](const Problem& p, const CaseEnv& c) {
    return make_quantize_case(p, c, [](const QuantizeRows& op, const QuantizeRowsArgs& args) {
      const Status status = op.run(args);
      static_cast<float*>(args.scale.data)[2] *= 2;
      return status;
    });
  });
  EXPECT_EQ(row.verified, Verified::kFailed);
  EXPECT_NE(row.error.find("scale[2]"), std::string::npos) << row.error;
}

TEST_F(RealOps, ColdRowsRotateBeyondTheCaches) {
  const Row row = measure("int8_gemm/m:1/n:1024/k:4096/thr:1/cold:1");
  EXPECT_EQ(row.error, "");
  EXPECT_GT(static_cast<double>(row.copies) * row.work.bytes, 512.0 * 1024 * 1024);
  EXPECT_TRUE(row.work.from_memory);
  EXPECT_EQ(measure("int8_gemm/m:1/n:1024/k:4096/thr:1").copies, 1);
}

TEST_F(RealOps, OpenLevelsAreResolvedToWhatRuns) {
  std::vector<Problem> problems = {
      problem("int8_gemm/m:1/n:64/k:64/thr:1/cold:1"), problem("bf16_gemm/m:300/n:64/k:64/thr:1"),
      problem("quantize_rows/m:3/k:64/thr:1"), problem("int8_gemm/m:1/n:64/k:64/isa:amx/thr:1")};
  resolve_levels(contexts_.plain(), &problems);
  for (size_t i = 0; i < 3; ++i) {
    const Row row = measure(to_string(problems[i]).c_str());
    EXPECT_EQ(row.error, "") << to_string(problems[i]);
    EXPECT_NE(problems[i].isa, IsaLevel::kNone);
    EXPECT_TRUE(row.problem == problems[i]) << to_string(row.problem);
    EXPECT_EQ(level_of_kernel(row.kernel), problems[i].isa) << row.kernel;
  }
  EXPECT_EQ(problems[3].isa, IsaLevel::kAmx);  // asked for: not to be replaced
}

TEST(ResolveLevels, WhatCannotRunStaysOpen) {
  ContextOptions options;
  options.max_isa = IsaLevel::kNone;
  std::vector<Problem> problems = {problem("int8_gemm/m:1/n:64/k:64")};
  resolve_levels(*Context::create(options), &problems);
  EXPECT_EQ(problems[0].isa, IsaLevel::kNone);
}

}  // namespace
}  // namespace quern::bench
