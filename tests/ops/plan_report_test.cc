// What a plan says about itself in verbose lines and explain(): every field true, the level that of
// the kernels that were chosen.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ops/context_impl.h"
#include "quern/quern.h"
#include "tests/ops/gemm_fixture.h"
#include "tests/ops/mock_machine.h"
#include "tests/ops/test_pools.h"

namespace quern {
namespace {

using Lines = std::vector<std::string>;
using Fields = std::vector<std::string>;

void collect(void* user, const char* line) {
  static_cast<Lines*>(user)->emplace_back(line);
}

Fields split(const std::string& line) {
  Fields fields(1);
  for (const char c : line) {
    if (c == ',') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

/// The lines of an event about an op; "-" for kernels.
std::vector<Fields> lines_of(const Lines& lines, const std::string& event, const std::string& op) {
  std::vector<Fields> found;
  for (const std::string& line : lines) {
    Fields fields = split(line);
    EXPECT_TRUE(fields.size() == 8 || fields.size() == 9) << line;
    if (fields.size() >= 8 && fields[2] == event && fields[3] == op) found.push_back(fields);
  }
  return found;
}

bool is_time(const std::string& ms) {
  const size_t point = ms.find('.');
  return point != std::string::npos && ms.size() == point + 7 && ms.find('-') == std::string::npos;
}

/// Plans on a machine of the test's making; what runs needs this machine's AVX-512.
class PlanReport : public ::testing::Test {
 protected:
  PlanReport() {
    options_.pool = &pool_;
    options_.verbose = kVerboseAll;
    options_.sink = &collect;
    options_.sink_user = &lines_;
  }
  Context context() {
    auto made = make_context(options_, cpu_, jit::system_memory());
    EXPECT_TRUE(made.ok()) << made.status().message();
    return *made;
  }

  jit::FakeCpu cpu_ = test::avx512_machine();
  test::ScriptedPool pool_{3};
  ContextOptions options_;
  Lines lines_;
};

constexpr char kWide[] = "int8_gemm/n:4096/k:64/isa:avx512/thr:3";

Int8GemmDesc wide_desc() {
  Int8GemmDesc desc;
  desc.n = 4096;
  desc.k = 64;
  return desc;
}

TEST_F(PlanReport, IsaIsTheChosenFamilysNotTheContexts) {
  cpu_ = test::amx_machine();
  const Context ctx = context();
  EXPECT_EQ(ctx.isa(), IsaLevel::kAmx);
  const auto int8 = Int8Gemm::create(ctx, wide_desc());
  const auto bf16 = Bf16Gemm::create(ctx, {16, 64, DType::kF32, {}, Invariance::kStrict});
  const auto quantize = QuantizeRows::create(ctx, {64, DType::kF32, 0});
  ASSERT_TRUE(int8.ok() && bf16.ok() && quantize.ok());
  EXPECT_EQ(int8->isa(), IsaLevel::kAmx);
  EXPECT_EQ(bf16->isa(), IsaLevel::kAmx);
  EXPECT_EQ(quantize->isa(), IsaLevel::kAvx512);
  const auto first_line = [](const std::string& text) { return text.substr(0, text.find('\n')); };
  EXPECT_EQ(first_line(int8->explain()), "int8_gemm/n:4096/k:64/isa:amx/thr:3");
  EXPECT_EQ(first_line(bf16->explain()), "bf16_gemm/n:16/k:64/c:f32/isa:amx/thr:3");
  EXPECT_EQ(first_line(quantize->explain()), "quantize_rows/k:64/a:f32/isa:avx512/thr:3");
}

// Design section 4: integers may change family with M because that changes no bit, floats only
// where the Desc allows it.
TEST_F(PlanReport, FamiliesByInvariance) {
  cpu_ = test::amx_machine();
  const Context ctx = context();
  Int8GemmDesc int8;
  int8.n = 64;
  int8.k = 64;
  Bf16GemmDesc bf16;
  bf16.n = 64;
  bf16.k = 64;
  const auto families = [](const std::string& text) {
    std::string found;
    for (const char* line :
         {"  amx: chosen\n", "  avx512: chosen for m 1..4\n",
          "  avx512: refused: amx is preferred, and adds up in another order\n"}) {
      if (text.find(line) != std::string::npos) found += line;
    }
    return found;
  };
  constexpr char kBoth[] = "  amx: chosen\n  avx512: chosen for m 1..4\n";
  constexpr char kOne[] =
      "  amx: chosen\n  avx512: refused: amx is preferred, and adds up in another order\n";
  for (const Invariance invariance : {Invariance::kStrict, Invariance::kFastest}) {
    const bool strict = invariance == Invariance::kStrict;
    int8.invariance = bf16.invariance = invariance;
    int8.activations = Int8Activations::kDynamicS8;
    EXPECT_EQ(families(Int8Gemm::create(ctx, int8)->explain()), kBoth);
    EXPECT_EQ(families(Bf16Gemm::create(ctx, bf16)->explain()), strict ? kOne : kBoth);
    int8.activations = Int8Activations::kBF16;
    EXPECT_EQ(families(Int8Gemm::create(ctx, int8)->explain()), strict ? kOne : kBoth);
  }
}

// No rows, and no family that stands in for few: nothing is looked up beyond the plan's families.
TEST_F(PlanReport, ScratchOfNoRows) {
  for (const jit::FakeCpu& cpu : {test::avx512_machine(), test::amx_machine()}) {
    cpu_ = cpu;
    const Context ctx = context();
    for (const Invariance invariance : {Invariance::kStrict, Invariance::kFastest}) {
      const auto bf16 = Bf16Gemm::create(ctx, {16, 64, DType::kF32, {}, invariance});
      const auto int8 = Int8Gemm::create(ctx, wide_desc());
      ASSERT_TRUE(bf16.ok() && int8.ok());
      EXPECT_EQ(bf16->scratch_bytes(0), bf16->scratch_bytes(-5));
      EXPECT_EQ(int8->scratch_bytes(0), int8->scratch_bytes(-5));
      EXPECT_LE(bf16->scratch_bytes(0), bf16->scratch_bytes(1));
    }
  }
}

TEST_F(PlanReport, LinesOfACreate) {
  ASSERT_TRUE(Int8Gemm::create(context(), wide_desc()).ok());
  const auto refused = lines_of(lines_, "dispatch", "int8_gemm");
  ASSERT_EQ(refused.size(), 2u);
  EXPECT_EQ(refused[0],
            (Fields{"quern_verbose", "v1", "dispatch", "int8_gemm", "amx", kWide, "thr3", "-",
                    "this machine has no usable AMX (quern-smoke doctor names the failed stage)"}));
  EXPECT_EQ(refused[1][4], "reference");
  EXPECT_EQ(refused[1][5], kWide);
  const auto created = lines_of(lines_, "create", "int8_gemm");
  ASSERT_EQ(created.size(), 1u);
  EXPECT_EQ(created[0][5], kWide);
  EXPECT_EQ(created[0][6], "thr3");
  EXPECT_TRUE(is_time(created[0][7])) << created[0][7];
  const auto kernels = lines_of(lines_, "create", "-");
  EXPECT_GT(kernels.size(), 1u);
  double all_ms = 0;
  for (const Fields& k : kernels) {
    EXPECT_EQ(k[5], "-");
    EXPECT_EQ(k[6], "-") << "a kernel is nobody's thread's";
    ASSERT_TRUE(is_time(k[7])) << k[7];
    EXPECT_GT(std::stod(k[7]), 0) << "generating " << k[4] << " took time";
    EXPECT_EQ(k.at(8).rfind("code_bytes:", 0), 0u);
    all_ms += std::stod(k[7]);
  }
  EXPECT_LE(all_ms, std::stod(created[0][7])) << "the plan's time includes its kernels'";
}

TEST_F(PlanReport, LinesOfACreateThatFails) {
  options_.jit = false;
  const Context no_jit = context();
  ASSERT_FALSE(Int8Gemm::create(no_jit, wide_desc()).ok());
  const auto failed = lines_of(lines_, "error", "int8_gemm");
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0][5], kWide) << "a family was chosen, its kernels could not be had";
  EXPECT_EQ(failed[0][6], "thr3");
  EXPECT_EQ(failed[0][7], "-");
  lines_.clear();
  cpu_ = test::old_machine();
  const auto old = make_context(options_, cpu_, jit::system_memory());
  ASSERT_TRUE(old.ok());
  ASSERT_FALSE(Int8Gemm::create(*old, wide_desc()).ok());
  EXPECT_EQ(lines_of(lines_, "dispatch", "int8_gemm").size(), 3u);
  const auto none = lines_of(lines_, "error", "int8_gemm");
  ASSERT_EQ(none.size(), 1u);
  EXPECT_EQ(none[0][5], "int8_gemm/n:4096/k:64/thr:3") << "no family, no level";
}

TEST_F(PlanReport, LinesOfRunsCountTheThreadsThatComputed) {
  if (Context().isa() < IsaLevel::kAvx512) GTEST_SKIP() << "not run: no AVX-512 to execute";
  const Context ctx = context();
  for (const int64_t n : {int64_t{4096}, int64_t{16}}) {
    lines_.clear();
    Int8GemmDesc desc = wide_desc();
    desc.n = n;
    desc.c = DType::kF32;
    const auto plan = Int8Gemm::create(ctx, desc);
    ASSERT_TRUE(plan.ok());
    const std::vector<int8_t> codes(static_cast<size_t>(n * desc.k), 1);
    const std::vector<float> scale(static_cast<size_t>(n), 1.0f);
    const std::vector<bfloat16> a(2 * 64);
    std::vector<float> c(static_cast<size_t>(2 * n));
    const auto weights =
        plan->pack({matrix_view(codes.data(), n, desc.k), vector_view(scale.data(), n)});
    ASSERT_TRUE(weights.ok());
    Int8GemmArgs args;
    args.a = matrix_view(a.data(), 2, desc.k);
    args.weights = &*weights;
    args.c = mutable_matrix_view(c.data(), 2, n);
    std::vector<std::byte> scratch(plan->scratch_bytes(2));
    ASSERT_TRUE(plan->run(args, scratch).ok());
    const auto runs = lines_of(lines_, "exec", "int8_gemm");
    ASSERT_EQ(runs.size(), 1u);
    EXPECT_EQ(runs[0][5], "int8_gemm/m:2/n:" + std::to_string(n) + "/k:64/c:f32/isa:avx512/thr:3");
    EXPECT_EQ(runs[0][6], n == 16 ? "thr1" : "thr3") << "a small call stays on the calling thread";
    EXPECT_TRUE(is_time(runs[0][7]));
    args.a.cols = 63;
    ASSERT_FALSE(plan->run(args, scratch).ok());
    const auto errors = lines_of(lines_, "error", "int8_gemm");
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_EQ(errors[0][5], runs[0][5]);
    EXPECT_EQ(errors[0][6], "thr3");
    EXPECT_EQ(errors[0][7], "-");
  }
}

/// Runs at each level, AMX natively or emulated.
class ExecLine : public test::IsaTest {
 protected:
  static Context verbose_context(Lines* lines) {
    ContextOptions options;
    options.max_isa = GetParam().level;
    options.verbose = kVerboseExec | kVerboseError;
    options.sink = &collect;
    options.sink_user = lines;
    auto made = make_context(options, test::cpu_at(GetParam()), jit::system_memory());
    EXPECT_TRUE(made.ok()) << made.status().message();
    return *made;
  }
};

// A plan that leaves few rows to another family says so in each line: kernel and level are those
// that ran, and those of the call that was refused would have.
TEST_P(ExecLine, NamesTheFamilyThatRan) {
  const std::string own = to_string(GetParam().level);
  for (const test::GemmKind& kind : test::kGemmKinds) {
    for (const Invariance invariance : {Invariance::kStrict, Invariance::kFastest}) {
      test::GemmCase c = test::make_case(kind, 33, 32, 64);
      c.invariance = invariance;
      test::GemmData data(c);
      Lines lines;
      const Context ctx = verbose_context(&lines);
      auto op = test::GemmOp::create(ctx, c);
      ASSERT_TRUE(op.ok()) << op.status().message();
      ASSERT_TRUE(op->pack(data).ok());
      const bool may_switch = c.integer_sums() || invariance == Invariance::kFastest;
      for (const int64_t m : {1, 4, 5, 33}) {
        const std::string level = may_switch && m <= 4 ? "avx512" : own;
        lines.clear();
        test::GemmOp::Args args = test::row_block(test::args_of(c, data), 0, m);
        ASSERT_TRUE(op->run(args).ok());
        args.a.cols -= 1;
        ASSERT_FALSE(op->run(args).ok());
        const auto exec = lines_of(lines, "exec", kind.op);
        const auto error = lines_of(lines, "error", kind.op);
        ASSERT_TRUE(exec.size() == 1 && error.size() == 1) << lines.size();
        EXPECT_NE(exec[0][4].find("." + level + "."), std::string::npos) << exec[0][4];
        const std::string shape = std::string(kind.op) + "/m:" + std::to_string(m) + "/n:32/k:64";
        for (const Fields& line : {exec[0], error[0]}) {
          EXPECT_EQ(line[5].rfind(shape, 0), 0u) << line[5];
          EXPECT_NE(line[5].find("/isa:" + level), std::string::npos)
              << line[5] << " " << kind.name << " m " << m;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(PlanReport, ExecLine, ::testing::ValuesIn(test::isas_to_test()),
                         test::isa_name);

}  // namespace
}  // namespace quern
