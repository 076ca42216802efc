// The binary itself: exit codes, where output goes, and equal bytes for any number of threads.

#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

#include "quern/context.h"
#include "tests/model_smoke/float_model.h"
#include "tests/model_smoke/smoke_binary.h"
#include "tests/support/source_dir.h"

namespace quern::smoke {
namespace {

using test::jit_runs;
using test::Outcome;
using test::smoke;
using test::TempDir;

const std::string kModel = test::docs_model();

TEST(Cli, UsageErrorsExitWithTwo) {
  for (const std::string& arguments :
       {std::string(), std::string("frobnicate"), std::string("verify"), kModel,
        "generate " + kModel, "generate " + kModel + " -p x --ids 1",
        "generate " + kModel + " --ids 1024", "generate " + kModel + " --ids -1",
        "generate " + kModel + " -p x -n 0", "generate " + kModel + " -p x -n 5000",
        "generate " + kModel + " -p x --temp -1", "verify " + kModel + " --threads 0",
        "verify " + kModel + " --act f64", "verify " + kModel + " --isa sse",
        "verify " + kModel + " --kv-cache fp8", "verify " + kModel + " --kv-cache fp4",
        "verify " + kModel + " --act int8 --backend reference",
        std::string("verify -m /nonexistent"),
        "verify " + kModel + " --goldens /nonexistent.safetensors"}) {
    const Outcome o = smoke(arguments);
    EXPECT_EQ(o.code, 2) << arguments;
    EXPECT_TRUE(o.out.empty()) << arguments << ": " << o.out;
    EXPECT_FALSE(o.err.empty()) << arguments;
  }
}

TEST(Cli, HelpAndVersionExitWithZero) {
  EXPECT_EQ(smoke("--help").code, 0);
  EXPECT_EQ(smoke("--version").code, 0);
  EXPECT_EQ(smoke("generate --help").code, 0);
}

TEST(Cli, MissingIsaNamesTheStage) {
  if (Context().isa() == IsaLevel::kAmx) GTEST_SKIP() << "this machine has AMX";
  const Outcome o = smoke("verify " + kModel + " --isa amx");
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("amx"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("failed: "), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("quern-smoke doctor"), std::string::npos) << o.err;
}

TEST(Cli, ACappedLevelSaysWhatCapsIt) {
  const Outcome o = smoke("verify " + kModel + " --isa amx", "QUERN_MAX_ISA=avx512");
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("unset QUERN_MAX_ISA"), std::string::npos) << o.err;
}

/// Of the two caps the lower one holds, whichever it is.
TEST(Cli, TheEnvironmentDoesNotLiftTheLevelAskedFor) {
  if (!jit_runs()) GTEST_SKIP() << "no kernel runs on this CPU: it has no AVX-512";
  const Outcome o = smoke("generate " + kModel + " -p x -n 1 --isa avx512", "QUERN_MAX_ISA=amx");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("isa avx512,"), std::string::npos) << o.err;
}

TEST(Cli, NoKernelsIsAnErrorAndNoSilentFallback) {
  for (const char* environment : {"QUERN_JIT=0", "QUERN_MAX_ISA=none"}) {
    const Outcome o = smoke("generate " + kModel + " -p x -n 2", environment);
    EXPECT_EQ(o.code, 2) << environment;
    EXPECT_TRUE(o.out.empty());
  }
  EXPECT_EQ(smoke("generate " + kModel + " -p x -n 2", "QUERN_MAX_ISA=best").code, 2);
}

/// The golden continuation, letter by letter, from the golden file's own text.
TEST(Cli, GeneratesTheGoldenText) {
  const Outcome o = smoke("generate " + kModel +
                          " -p 'The following example shows how to' -n 16 --backend reference");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "\nrequired to themselves.\n\n.. _\n");
  EXPECT_NE(o.err.find("decode"), std::string::npos);
  EXPECT_NE(o.err.find("kernels used"), std::string::npos);
}

TEST(Cli, VerifyDumpsTheSameBytesForOneAndTwoThreads) {
  if (!jit_runs()) GTEST_SKIP() << "no kernel runs on this CPU: it has no AVX-512";
  const TempDir dir;
  for (const char* model : {"", ".w8a8_int8"}) {
    for (const char* threads : {"1", "2"}) {
      const Outcome o =
          smoke("verify " + kModel + model + " --threads " + threads + " --dump-logits " +
                dir.file(threads) + " --json " + dir.file("json"));
      EXPECT_EQ(o.code, 0) << o.out << o.err;
      EXPECT_NE(o.out.find("verdict: PASS"), std::string::npos);
    }
    const std::string one = test::read_file(dir.file("1"));
    EXPECT_GT(one.size(), 100'000u);
    EXPECT_EQ(one == test::read_file(dir.file("2")), true) << "model" << model;
    const auto json = nlohmann::json::parse(test::read_file(dir.file("json")));
    EXPECT_EQ(json.at("pass"), true);
    EXPECT_GE(json.at("prompts").size(), 3u);
  }
}

/// Goldens of another model: the check fails, and a failed check is 1, not 2.
TEST(Cli, FailedCheckExitsWithOne) {
  const std::string other = quern::test::source_dir() +
                            "/model_smoke/checkpoints/qwen35_docs.w8a8_int8/goldens.safetensors";
  const Outcome o = smoke("verify " + kModel + " --backend reference --goldens " + other);
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_NE(o.out.find("verdict: FAIL"), std::string::npos);
}

/// Every scale is finite, the weights are not.
TEST(Cli, GenerateStopsAtLogitsThatAreNotFinite) {
  test::TestModel m = test::tiny_float_model({.bend = [](const std::string&, test::FloatMatrix& w) {
    for (float& scale : w.scale) scale = 3e38f;
  }});
  const TempDir dir;
  m.write(dir);
  for (const char* temperature : {"0", "0.7"}) {
    const Outcome o = smoke("generate -m " + dir.path() +
                            " --ids 1,2 -n 3 --backend reference --temp " + temperature);
    EXPECT_EQ(o.code, 1) << o.err;
    EXPECT_NE(o.err.find("new tokens 0 (stopped by logits that are not finite)"), std::string::npos)
        << o.err;
  }
}

TEST(Cli, DoctorReportsEveryStage) {
  const TempDir dir;
  const Outcome o = smoke("doctor --json " + dir.file("json"));
  EXPECT_EQ(o.code, jit_runs() ? 0 : 1);
  const auto json = nlohmann::json::parse(test::read_file(dir.file("json")));
  EXPECT_GE(json.at("stages").size(), 5u);
  EXPECT_EQ(json.at("tuning database"), "compiled-in defaults");
  for (const char* key :
       {"cpu", "memory", "mxcsr", "executable memory", "transparent huge pages"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(smoke("doctor", "QUERN_JIT=0").code, 1);
}

TEST(Cli, AVariableNobodyUnderstandsIsBadInput) {
  for (const char* variable : {"QUERN_MAX_ISA", "QUERN_JIT", "QUERN_VERBOSE", "QUERN_JIT_DUMP"}) {
    for (const std::string& command : {std::string("doctor"), "verify " + kModel}) {
      const Outcome o = smoke(command, std::string(variable) + "=/nonexistent");
      EXPECT_EQ(o.code, 2) << variable;
      EXPECT_TRUE(o.out.empty()) << o.out;
      EXPECT_EQ(o.err.find("quern-smoke: " + std::string(variable) + ": expected "), 0u) << o.err;
      EXPECT_NE(o.err.find(", got '/nonexistent'"), std::string::npos) << o.err;
    }
  }
}

}  // namespace
}  // namespace quern::smoke
