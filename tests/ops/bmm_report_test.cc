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

// Products that share B are one product where their rows are one sequence; the bits are the same.
TEST_P(BmmReportTest, OneBIsOneProduct) {
  Lines lines;
  ContextOptions options;
  options.max_isa = isa().level;
  options.verbose = kVerboseExec;
  options.sink = &Lines::add;
  options.sink_user = &lines;
  const auto context = make_context(options, cpu_at(isa()), jit::system_memory());
  ASSERT_TRUE(context.ok());
  const auto kernel_of_last = [&lines] {
    const std::string line = lines.all.empty() ? "" : lines.all.back();
    const size_t at = line.find("exec,bmm,");
    return at == std::string::npos ? line : line.substr(at, line.find(',', at + 9) - at);
  };
  constexpr BatchForm kMatrices = BatchForm::kMatrices, kHeads = BatchForm::kHeads,
                      kShared = BatchForm::kShared;
  const struct {
    BatchForm a, c, b;
    int64_t m, gap;
    bool one;
  } calls[] = {
      {kMatrices, kMatrices, kShared, 3, 0, true},  {kHeads, kHeads, kShared, 3, 0, true},
      {kHeads, kMatrices, kShared, 1, 0, true},     {kHeads, kMatrices, kShared, 3, 0, false},
      {kMatrices, kHeads, kShared, 3, 0, false},    {kShared, kMatrices, kShared, 3, 0, false},
      {kMatrices, kMatrices, kShared, 3, 2, false}, {kHeads, kHeads, kMatrices, 3, 0, false},
  };
  for (const auto& call : calls) {
    BmmCase c = make_bmm(b(), 40, call.m, 40, 700);
    c.a_form = call.a;
    c.c_form = call.c;
    c.b_form = call.b;
    c.gap = call.gap;
    BmmData data(c);
    Result<BmmOp> op = BmmOp::create(*context, c);
    ASSERT_TRUE(op.ok());
    ASSERT_TRUE(op->pack(c, data).ok());
    const BmmArgs args = op->args(c, data);
    const int64_t rows = call.m * c.problem.batch;
    const size_t few = op->op().scratch_bytes(call.m), enough = op->op().scratch_bytes(rows);
    std::vector<std::byte> scratch(enough + 64, std::byte{0xA5});
    // Product by product: each a call of its own, and where B is not one, as it comes.
    BmmData other(c);
    const BmmArgs args_of_others = op->args(c, other);
    const int64_t calls_of_one = call.b == kShared ? c.problem.batch : 0;
    if (calls_of_one == 0) {
      ASSERT_TRUE(op->op().run(args_of_others, scratch).ok());
    }
    for (int64_t i = 0; i < calls_of_one; ++i) {
      BmmArgs product = args_of_others;
      product.a.data = other.a.matrix(i).data;
      product.c.data = const_cast<void*>(other.c.matrix(i).data);
      product.a.batch = product.b.batch = product.c.batch = 1;
      if (!c.plain()) product.b = {};
      ASSERT_TRUE(op->op().run(product, scratch).ok());
    }
    const std::vector<uint32_t> expected = element_bits(other.c);
    const std::string product_by_product = kernel_of_last();
    if (few < enough) {
      ASSERT_TRUE(op->op().run(args, {scratch.data(), enough - 1}).ok());
      EXPECT_EQ(kernel_of_last(), product_by_product);
      EXPECT_EQ(element_bits(data.c), expected) << to_string(c);
      data.c.set_all(-1);
    }
    ASSERT_TRUE(op->op().run(args, {scratch.data(), enough}).ok());
    EXPECT_EQ(kernel_of_last() != product_by_product, call.one)
        << to_string(c) << " by " << kernel_of_last();
    EXPECT_EQ(element_bits(data.c), expected) << to_string(c);
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
