// Where no kernel can run, create() fails and names the cause; there is no other path.
#include <cerrno>

#include "ops/context_impl.h"
#include "quern/quantize_rows.h"
#include "tests/jit/fake_memory.h"
#include "tests/ops/gemm_fixture.h"
#include "tests/ops/mock_machine.h"

namespace quern::test {
namespace {

class GemmRefusalTest : public ::testing::TestWithParam<GemmKind> {
 protected:
  void expect_refused(const Result<Context>& made, StatusCode code, const char* cause) {
    ASSERT_TRUE(made.ok()) << made.status().message();
    for (const DType type : {DType::kBF16, DType::kF32}) {
      GemmCase c = make_case(GetParam(), 1, 16, 64);
      c.problem.c = type;
      const Result<GemmOp> op = GemmOp::create(*made, c);
      ASSERT_FALSE(op.ok());
      EXPECT_EQ(op.status().code(), code) << op.status().message();
      EXPECT_NE(op.status().message().find(cause), std::string::npos) << op.status().message();
    }
  }
};

TEST_P(GemmRefusalTest, MachineWithoutAvx512) {
  const jit::FakeCpu cpu = old_machine();
  expect_refused(make_context({}, cpu, jit::system_memory()), StatusCode::kUnsupported, "AVX-512");
}

TEST_P(GemmRefusalTest, LevelCappedAtNone) {
  const jit::FakeCpu cpu = avx512_machine();
  ContextOptions options;
  options.max_isa = IsaLevel::kNone;
  expect_refused(make_context(options, cpu, jit::system_memory()), StatusCode::kUnsupported,
                 "capped to none");
}

TEST_P(GemmRefusalTest, JitSwitchedOff) {
  const jit::FakeCpu cpu = avx512_machine();
  ContextOptions options;
  options.jit = false;
  expect_refused(make_context(options, cpu, jit::system_memory()), StatusCode::kJitUnavailable,
                 "JIT");
}

TEST_P(GemmRefusalTest, ExecutableMemoryDenied) {
  const jit::FakeCpu cpu = avx512_machine();
  for (const int error : {EACCES, EPERM, ENOMEM}) {
    jit::FakeMemory memory;
    memory.protect_error = error;
    memory.memfd_error = error;
    memory.map_fd_error = error;
    // A refusal by policy and want of memory are different causes, and are told apart.
    expect_refused(make_context({}, cpu, memory),
                   error == ENOMEM ? StatusCode::kOutOfMemory : StatusCode::kJitUnavailable,
                   "memory");
    EXPECT_EQ(memory.live_mappings, 0) << error;
    EXPECT_EQ(memory.open_files, 0) << error;
  }
}

// Some hardened systems report success and withhold the right to execute.
TEST_P(GemmRefusalTest, ExecutableMemoryWithheld) {
  const jit::FakeCpu cpu = avx512_machine();
  jit::FakeMemory memory;
  memory.protect_error = jit::FakeMemory::kPretend;
  memory.map_fd_error = jit::FakeMemory::kPretend;
  expect_refused(make_context({}, cpu, memory), StatusCode::kJitUnavailable, "withheld");
  EXPECT_EQ(memory.live_mappings, 0);
  EXPECT_EQ(memory.open_files, 0);
}

// The five modes of reliability.md, J2, for the op that is no GEMM.
TEST(QuantizeRowsRefusal, NamesTheCause) {
  const struct {
    int error;
    bool jit;
    StatusCode code;
    const char* cause;
  } modes[] = {{EACCES, true, StatusCode::kJitUnavailable, "denied"},
               {EPERM, true, StatusCode::kJitUnavailable, "denied"},
               {ENOMEM, true, StatusCode::kOutOfMemory, "no memory for generated code"},
               {jit::FakeMemory::kPretend, true, StatusCode::kJitUnavailable, "withheld"},
               {0, false, StatusCode::kJitUnavailable, "JIT is switched off"}};
  const jit::FakeCpu cpu = avx512_machine();
  for (const auto& mode : modes) {
    jit::FakeMemory memory;
    memory.protect_error = mode.error;
    memory.map_fd_error = mode.error;
    ContextOptions options;
    options.jit = mode.jit;
    const auto ctx = make_context(options, cpu, memory);
    ASSERT_TRUE(ctx.ok());
    const auto op = QuantizeRows::create(*ctx, {.k = 64});
    ASSERT_FALSE(op.ok()) << mode.cause;
    EXPECT_EQ(op.status().code(), mode.code) << op.status().message();
    EXPECT_NE(op.status().message().find(mode.cause), std::string::npos) << op.status().message();
    EXPECT_EQ(memory.live_mappings, 0);
    EXPECT_EQ(memory.open_files, 0);
  }
}

std::string kind_name(const ::testing::TestParamInfo<GemmKind>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Ops, GemmRefusalTest, ::testing::ValuesIn(kGemmKinds), kind_name);

}  // namespace
}  // namespace quern::test
