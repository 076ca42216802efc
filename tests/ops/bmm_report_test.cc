// What a batched product says about itself, what a tuning source is asked, how tiles are used.
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "jit/code_memory.h"
#include "ops/context_impl.h"
#include "tests/ops/bmm_case.h"
#include "tests/support/amx_trap.h"
#include "tests/support/temp_dir.h"

namespace quern::test {
namespace {

using BmmReportTest = BmmTest;

struct Lines {
  std::vector<std::string> all;
  static void add(void* user, const char* line) { static_cast<Lines*>(user)->all.push_back(line); }
  const std::string* find(const std::string& part) const {
    for (const std::string& line : all) {
      if (line.find(part) != std::string::npos) return &line;
    }
    return nullptr;
  }
};

TEST_P(BmmReportTest, LinesHoldTheProblemOfTheCall) {
  Lines lines;
  ContextOptions options;
  options.max_isa = isa().level;
  options.verbose = kVerboseAll;
  options.sink = &Lines::add;
  options.sink_user = &lines;
  const auto context = make_context(options, cpu_at(isa()), jit::system_memory());
  ASSERT_TRUE(context.ok());
  const BmmCase c = make_bmm(b(), 3, 2, 20, 30);
  BmmData data(c);
  Result<BmmOp> op = BmmOp::create(*context, c);
  ASSERT_TRUE(op.ok());
  ASSERT_TRUE(op->pack(c, data).ok());
  BmmArgs args = op->args(c, data);
  ASSERT_TRUE(op->run(args).ok());
  args.a.cols = 31;
  ASSERT_FALSE(op->run(args).ok());
  const std::string w = b() == BmmOperand::kBF16 ? "" : "/w:" + std::string(name_of(b()));
  const std::string level = std::string("/isa:") + to_string(isa().level) + "/thr:1";
  const std::string plan = "bmm/n:20/k:30" + w + level;
  const std::string call = "bmm/b:3/m:2/n:20/k:30" + w + level;
  EXPECT_NE(lines.find("quern_verbose,v1,create,bmm,bf16_gemm"), nullptr);
  EXPECT_NE(lines.find("," + plan + ",thr1,"), nullptr);
  const std::string* exec = lines.find("quern_verbose,v1,exec,bmm,bf16_gemm");
  ASSERT_NE(exec, nullptr);
  EXPECT_NE(exec->find("," + call + ",thr1,"), std::string::npos) << *exec;
  const std::string* error = lines.find("quern_verbose,v1,error,bmm");
  ASSERT_NE(error, nullptr);
  EXPECT_NE(error->find("," + call + ",thr1,-,invalid argument: a.cols (31) must be 30"),
            std::string::npos)
      << *error;
  args.a.rows = args.a.batch = args.c.batch = 0;
  ASSERT_FALSE(op->run(args).ok());
  EXPECT_NE(lines.find(",bmm/b:0/m:0/n:20/k:30" + w), nullptr) << "a call's name has every size";
  EXPECT_EQ(op->op().explain().rfind(plan + "\n", 0), 0u) << op->op().explain();
  EXPECT_NE(op->op().explain().find("  reference: refused: only on explicit request"),
            std::string::npos);
}

/// Keeps the questions.
class AskedSource final : public TuningSource {
 public:
  bool lookup(const Problem& problem, GemmBlocking*) const noexcept override {
    const std::lock_guard<std::mutex> lock(mutex_);
    asked_.push_back(to_string(problem));
    return false;
  }
  const char* name() const noexcept override { return "asked"; }
  bool was_asked(const std::string& text) const {
    for (const std::string& asked : asked_) {
      if (asked == text) return true;
    }
    return false;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::string> asked_;
};

TEST_P(BmmReportTest, TuningIsAskedForRowsOfAMatrix) {
  const AskedSource source;
  const Context context = context_at(isa(), nullptr, &source);
  ASSERT_TRUE(BmmOp::create(context, make_bmm(b(), 7, 1, 20, 30)).ok());
  const std::string w = b() == BmmOperand::kBF16 ? "" : "/w:" + std::string(name_of(b()));
  for (const char* m : {"1", "16", "64", "2048"}) {
    EXPECT_TRUE(source.was_asked(std::string("bmm/b:0/m:") + m + "/n:20/k:30" + w +
                                 "/isa:" + to_string(isa().level) + "/thr:1"))
        << m;
  }
}

// One configuration serves all matrices, and goes with the last one.
TEST_P(BmmReportTest, TilesAreConfiguredOncePerShapeInACall) {
  if (isa().name != "amx_emulated") GTEST_SKIP() << "not run: only the emulator counts";
  for (const int64_t m : {1, 16, 32, 37}) {
    const BmmCase c = make_bmm(b(), 5, m, 40, 70);
    BmmData data(c);
    Result<BmmOp> op = BmmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok());
    ASSERT_TRUE(op->pack(c, data).ok());
    const amx_emu::Counters before = amx_emu::thread_counters();
    ASSERT_TRUE(op->run(op->args(c, data)).ok());
    const amx_emu::Counters counted = amx_emu::thread_counters() - before;
    // 37 rows are blocks of 16 + 5 and 16: the first serves the second, but not the other way.
    const uint64_t expected = m == 37 ? 2 : 1;
    EXPECT_LE(counted[amx_emu::Op::kLdtilecfg], expected) << m;
    EXPECT_EQ(counted[amx_emu::Op::kTilerelease], 1u) << m;
    const int64_t tiles = (m + 15) / 16 * 3 * ((70 + 31) / 32) * 5;
    EXPECT_EQ(counted.dots(), static_cast<uint64_t>(tiles)) << m;
  }
}

TEST_P(BmmReportTest, WeightsFromAFile) {
  const BmmCase c = make_bmm(b(), 3, 4, 50, 70);
  if (c.plain()) GTEST_SKIP() << "a plain B is not packed";
  BmmData data(c);
  Result<BmmOp> op = BmmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok());
  ASSERT_TRUE(op->pack(c, data).ok());
  const std::vector<uint32_t> expected = output_bits(*op, c, data);
  const TempDir dir;
  ASSERT_TRUE(op->packed().save(dir.file("w")).ok());
  const auto mapped = PackedWeights::map(dir.file("w"), {.verify = true});
  ASSERT_TRUE(mapped.ok()) << mapped.status().message();
  op->use(*mapped);
  data.c.set_all(0);
  EXPECT_EQ(output_bits(*op, c, data), expected);
}

// Levels share the packed bytes.
TEST_P(BmmReportTest, WeightsOfOtherLevels) {
  const BmmCase c = make_bmm(b(), 3, 4, 50, 70);
  if (c.plain()) GTEST_SKIP() << "a plain B is not packed";
  BmmData data(c);
  Result<BmmOp> op = BmmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok());
  ASSERT_TRUE(op->pack(c, data).ok());
  for (const TestIsa& level : isas_to_test()) {
    if (!level.skip_reason.empty()) continue;
    Result<BmmOp> other = BmmOp::create(shared_context(level), c);
    ASSERT_TRUE(other.ok());
    ASSERT_TRUE(other->pack(c, data).ok());
    const PackedWeights &x = op->packed(), &y = other->packed();
    ASSERT_EQ(x.bytes(), y.bytes());
    EXPECT_EQ(std::memcmp(x.data(), y.data(), x.bytes()), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, BmmReportTest, every_bmm(), bmm_test_name);

}  // namespace
}  // namespace quern::test
