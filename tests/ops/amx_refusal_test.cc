// reliability.md, A2: a machine that has AMX, and a kernel that will not let us use it. Whatever it
// answers, no plan may hold an AMX kernel, and everything else works as if AMX were not there.
#include <cerrno>

#include "ops/context_impl.h"
#include "quern/quantize_rows.h"
#include "tests/ops/gemm_fixture.h"
#include "tests/ops/mock_machine.h"

namespace quern::test {
namespace {

struct Refusal {
  const char* name;
  int error;
};
void PrintTo(const Refusal& refusal, std::ostream* out) {
  *out << refusal.name;
}
constexpr Refusal kRefusals[] = {{"EPERM", EPERM},
                                 {"EINVAL", EINVAL},
                                 {"ENOSYS", ENOSYS},
                                 {"EOPNOTSUPP", EOPNOTSUPP},
                                 {"ENOSPC", ENOSPC}};

class AmxRefusalTest : public ::testing::TestWithParam<Refusal> {
 protected:
  void SetUp() override {
    cpu_.request_error = GetParam().error;
    ContextOptions options;
    options.verbose = kVerboseCreate;
    options.sink = [](void* user, const char* line) {
      static_cast<std::vector<std::string>*>(user)->emplace_back(line);
    };
    options.sink_user = &lines_;
    auto made = make_context(options, cpu_, jit::system_memory());
    ASSERT_TRUE(made.ok()) << made.status().message();
    ctx_ = std::move(*made);
  }
  /// The names of all kernels that were generated.
  std::vector<std::string> kernels() const {
    std::vector<std::string> names;
    for (const std::string& line : lines_) {
      if (line.rfind("quern_verbose,v1,create,-,", 0) == 0) names.push_back(line.substr(26));
    }
    return names;
  }

  jit::FakeCpu cpu_ = amx_machine();
  std::vector<std::string> lines_;
  Context ctx_;
};

TEST_P(AmxRefusalTest, NoPlanHoldsAnAmxKernel) {
  EXPECT_EQ(ctx_.isa(), IsaLevel::kAvx512);
  const IsaStage& permission = ctx_.isa_report().stages.at(4);
  EXPECT_FALSE(permission.passed);
  EXPECT_NE(permission.detail.find(GetParam().name), std::string::npos) << permission.detail;
  for (const GemmKind& kind : kGemmKinds) {
    for (const auto activation : {Activation::kNone, Activation::kSiluMul}) {
      GemmCase c = make_case(kind, 100, 64, 256);
      c.problem.epilogue.activation = activation;
      const Result<GemmOp> op = GemmOp::create(ctx_, c);
      ASSERT_TRUE(op.ok()) << op.status().message();
      const std::string text = op->explain();
      EXPECT_NE(text.find("isa:avx512"), std::string::npos) << text;
      EXPECT_NE(text.find("amx: refused"), std::string::npos) << text;
      EXPECT_NE(text.find("avx512: chosen"), std::string::npos) << text;
    }
  }
  ASSERT_TRUE(QuantizeRows::create(ctx_, {.k = 64}).ok());
  ASSERT_FALSE(kernels().empty()) << "no line tells of a kernel";
  for (const std::string& kernel : kernels()) {
    EXPECT_EQ(kernel.find("amx"), std::string::npos) << kernel;
    EXPECT_NE(kernel.find(".avx512."), std::string::npos) << kernel;
  }
}

// The kernel is asked once for each context, not again for each plan.
TEST_P(AmxRefusalTest, TheRefusalIsFinal) {
  const size_t calls = cpu_.calls.size();
  EXPECT_GT(calls, 0u);
  for (const GemmKind& kind : kGemmKinds) {
    ASSERT_TRUE(GemmOp::create(ctx_, make_case(kind, 16, 64, 256)).ok());
  }
  EXPECT_EQ(cpu_.calls.size(), calls);
}

std::string refusal_name(const ::testing::TestParamInfo<Refusal>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Kernel, AmxRefusalTest, ::testing::ValuesIn(kRefusals), refusal_name);

// The five names are told apart from a grant: the same machine, permission given.
TEST(AmxGranted, TheContextHasTheLevel) {
  const jit::FakeCpu cpu = amx_machine();
  const auto ctx = make_context({}, cpu, jit::system_memory());
  ASSERT_TRUE(ctx.ok());
  EXPECT_EQ(ctx->isa(), IsaLevel::kAmx);
}

}  // namespace
}  // namespace quern::test
