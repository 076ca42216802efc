// What QUERN_* variables do. Every test sets all of them, so that the environment of the test run
// does not matter.
#include "ops/environment.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/context_impl.h"
#include "quern/context.h"

namespace quern {
namespace {

constexpr const char* kVariables[] = {"QUERN_MAX_ISA", "QUERN_JIT", "QUERN_JIT_DUMP",
                                      "QUERN_JIT_PROFILE", "QUERN_VERBOSE"};

/// Exactly these variables and no others, until the end of the scope.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<const char*, const char*>> values) {
    for (const char* name : kVariables) {
      const char* old = getenv(name);
      saved_.emplace_back(name, old != nullptr ? std::optional<std::string>(old) : std::nullopt);
      unsetenv(name);
    }
    for (const auto& [name, value] : values) setenv(name, value, 1);
  }
  ~Environment() {
    for (const auto& [name, value] : saved_) {
      if (value.has_value()) {
        setenv(name, value->c_str(), 1);
      } else {
        unsetenv(name);
      }
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> saved_;
};

TEST(Environment, NothingSetChangesNothing) {
  const Environment env{};
  ContextOptions base;
  base.max_isa = IsaLevel::kAvx512;
  base.jit = false;
  base.verbose = kVerboseExec;
  const auto ctx = Context::from_environment(base);
  ASSERT_TRUE(ctx.ok());
  EXPECT_EQ(ctx->options().max_isa, IsaLevel::kAvx512);
  EXPECT_FALSE(ctx->options().jit);
  EXPECT_EQ(ctx->options().verbose, kVerboseExec);
  EXPECT_TRUE(ctx->options().jit_dump_dir.empty());
}

TEST(Environment, GoesOnTopOfTheBase) {
  const std::string dir = std::filesystem::temp_directory_path().string();
  const Environment env{{"QUERN_MAX_ISA", "none"},
                        {"QUERN_JIT", "1"},
                        {"QUERN_JIT_DUMP", dir.c_str()},
                        {"QUERN_JIT_PROFILE", "gdb,perf"},
                        {"QUERN_VERBOSE", "error,create"}};
  ContextOptions base;
  base.max_isa = IsaLevel::kAvx512;
  base.jit = false;
  base.verbose = kVerboseExec;
  const auto ctx = Context::from_environment(base);
  ASSERT_TRUE(ctx.ok()) << ctx.status().message();
  EXPECT_EQ(ctx->options().max_isa, IsaLevel::kNone);
  EXPECT_EQ(ctx->isa(), IsaLevel::kNone);
  EXPECT_TRUE(ctx->options().jit);
  EXPECT_EQ(ctx->options().jit_dump_dir, dir);
  EXPECT_EQ(ctx->options().jit_profile, static_cast<uint32_t>(kJitProfilePerf | kJitProfileGdb));
  EXPECT_EQ(ctx->options().verbose, static_cast<uint32_t>(kVerboseError | kVerboseCreate));
}

TEST(Environment, EveryLegalValue) {
  const struct {
    const char* value;
    IsaLevel level;
  } levels[] = {{"none", IsaLevel::kNone}, {"avx512", IsaLevel::kAvx512}, {"amx", IsaLevel::kAmx}};
  for (const auto& c : levels) {
    const Environment env{{"QUERN_MAX_ISA", c.value}};
    ContextOptions options;
    EXPECT_TRUE(apply_environment(&options).ok());
    EXPECT_EQ(options.max_isa, c.level) << c.value;
  }
  for (const bool on : {false, true}) {
    const Environment env{{"QUERN_JIT", on ? "1" : "0"}};
    ContextOptions options;
    options.jit = !on;
    EXPECT_TRUE(apply_environment(&options).ok());
    EXPECT_EQ(options.jit, on);
  }
  const struct {
    const char* value;
    uint32_t flags;
  } verbose[] = {{"off", 0},
                 {"error", 1},
                 {"dispatch", 2},
                 {"create", 4},
                 {"exec", 8},
                 {"all", 15},
                 {"error,exec", 9},
                 {"exec,error", 9},
                 {"create,create", 4},
                 {"error,all", 15},
                 {"error,dispatch,create,exec", 15}};
  for (const auto& c : verbose) {
    const Environment env{{"QUERN_VERBOSE", c.value}};
    ContextOptions options;
    options.verbose = kVerboseDispatch;
    EXPECT_TRUE(apply_environment(&options).ok());
    EXPECT_EQ(options.verbose, c.flags) << c.value;
  }
  const struct {
    const char* value;
    uint32_t flags;
  } profile[] = {{"off", 0},         {"perf", 1}, {"jitdump", 2}, {"gdb", 4},
                 {"jitdump,gdb", 6}, {"all", 7},  {"gdb,gdb", 4}, {"perf,jitdump,gdb", 7}};
  for (const auto& c : profile) {
    const Environment env{{"QUERN_JIT_PROFILE", c.value}};
    ContextOptions options;
    options.jit_profile = kJitProfileJitdump;
    EXPECT_TRUE(apply_environment(&options).ok());
    EXPECT_EQ(options.jit_profile, c.flags) << c.value;
  }
}

TEST(Environment, UnknownValuesAreErrorsThatNameTheVariable) {
  const struct {
    const char* name;
    std::vector<const char*> values;
    const char* rule;
  } cases[] = {
      {"QUERN_MAX_ISA",
       {"", "AMX", "avx2", "amx ", " amx", "avx512,amx", "2", "auto", "reference"},
       "QUERN_MAX_ISA must be amx, avx512 or none"},
      {"QUERN_JIT", {"", "2", "00", "01", "on", "true", " 1", "-1"}, "QUERN_JIT must be 0 or 1"},
      {"QUERN_VERBOSE",
       {"", "1", "ALL", "off,error", "error,off", "error,", ",error", "error,,exec", "error exec",
        "error, exec", "exe", "execs"},
       "QUERN_VERBOSE must be off, or error, dispatch, create, exec, all joined by commas"},
      {"QUERN_JIT_PROFILE",
       {"", "1", "PERF", "off,perf", "perf,off", "perf,", ",gdb", "perf,,gdb", "perf gdb", "vtune"},
       "QUERN_JIT_PROFILE must be off, or perf, jitdump, gdb, all joined by commas"},
      {"QUERN_JIT_DUMP",
       {"", "/nonexistent/quern", "/dev/null"},
       "QUERN_JIT_DUMP must be an existing directory that can be written to"},
  };
  for (const auto& c : cases) {
    for (const char* value : c.values) {
      const Environment env{{c.name, value}};
      const auto ctx = Context::from_environment();
      ASSERT_FALSE(ctx.ok()) << c.name << "='" << value << "'";
      EXPECT_EQ(ctx.status().code(), StatusCode::kInvalidArgument);
      EXPECT_NE(ctx.status().message().find(c.rule), std::string::npos) << ctx.status().message();
      const std::string got = std::string(", got '") + value + "'";
      EXPECT_TRUE(ctx.status().message().ends_with(got)) << ctx.status().message();
    }
  }
}

TEST(Environment, VerboseErrorsSayWhere) {
  const Environment env{{"QUERN_VERBOSE", "error,exce"}};
  ContextOptions options;
  EXPECT_EQ(apply_environment(&options).value(0), 6);
}

TEST(Environment, OnlyFromEnvironmentReadsIt) {
  const Environment env{{"QUERN_MAX_ISA", "nonsense"},
                        {"QUERN_JIT", "nonsense"},
                        {"QUERN_JIT_DUMP", "/nonexistent/quern"},
                        {"QUERN_JIT_PROFILE", "nonsense"},
                        {"QUERN_VERBOSE", "nonsense"}};
  const Context plain;
  EXPECT_EQ(plain.options().max_isa, IsaLevel::kAmx);
  EXPECT_TRUE(plain.options().jit);
  const auto created = Context::create(ContextOptions());
  ASSERT_TRUE(created.ok());
  EXPECT_EQ(created->options().verbose, kVerboseNone);
  EXPECT_EQ(created->options().jit_profile, kJitProfileNone);
  EXPECT_FALSE(Context::from_environment().ok());
}

TEST(Environment, JitSwitchedOffIsNamedByKernelRequests) {
  const Environment env{{"QUERN_JIT", "0"}};
  const auto ctx = Context::from_environment();
  ASSERT_TRUE(ctx.ok());
  const auto kernel = ctx->impl().kernel(
      "any", []() -> Result<jit::GeneratedCode> { return jit::GeneratedCode(); });
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.status().code(), StatusCode::kJitUnavailable);
  EXPECT_NE(kernel.status().message().find("QUERN_JIT"), std::string::npos);
}

TEST(Environment, BaseIsCheckedToo) {
  const Environment env{};
  ContextOptions base;
  base.verbose = 64;
  const auto ctx = Context::from_environment(base);
  ASSERT_FALSE(ctx.ok());
  EXPECT_NE(ctx.status().message().find("options.verbose"), std::string::npos);
}

}  // namespace
}  // namespace quern
