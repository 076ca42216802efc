#include "quern/context.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "jit/isa.h"
#include "ops/context_impl.h"
#include "quern/tuning.h"
#include "tests/jit/fake_cpu.h"
#include "tests/jit/fake_memory.h"
#include "tests/ops/mock_machine.h"
#include "tests/ops/test_pools.h"

namespace quern {
namespace {

using Lines = std::vector<std::string>;

void collect(void* user, const char* line) {
  static_cast<Lines*>(user)->emplace_back(line);
}

// The shortest kernel there is: one `ret`.
Result<jit::GeneratedCode> return_at_once() {
  jit::GeneratedCode code;
  code.name = "ret";
  code.bytes = {0xc3};
  return code;
}

/// A directory of its own, removed at the end.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "quern_XXXXXX").string();
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Context, DefaultIsSerialAndKnowsTheMachine) {
  const Context ctx;
  EXPECT_EQ(ctx.pool().size(), 1);
  IsaReport report;
  jit::detect(jit::system_cpu(), IsaLevel::kAmx, &report);
  EXPECT_EQ(ctx.isa(), report.level);
  EXPECT_EQ(ctx.isa_report().level, report.level);
  EXPECT_EQ(ctx.isa_report().stages.size(), report.stages.size());
  EXPECT_TRUE(ctx.options().jit);
  EXPECT_EQ(ctx.options().pool, nullptr);
  const ContextStats stats = ctx.stats();
  EXPECT_EQ(stats.kernels_generated, 0u);
  EXPECT_EQ(stats.kernel_cache_hits, 0u);
  EXPECT_EQ(stats.code_bytes, 0u);
}

TEST(Context, OpensNothing) {
  const auto open_files = [] {
    std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const auto before = open_files();
  const Context ctx;
  EXPECT_EQ(open_files(), before);
}

TEST(Context, UsesTheCallersPool) {
  test::ScriptedPool pool(5);
  const Context ctx(&pool);
  EXPECT_EQ(&ctx.pool(), &pool);
  ContextOptions options;
  options.pool = &pool;
  const auto created = Context::create(options);
  ASSERT_TRUE(created.ok());
  EXPECT_EQ(&created->pool(), &pool);
}

TEST(Context, CopiesShareEverything) {
  const Context a;
  const Context b = a;
  EXPECT_EQ(&a.impl(), &b.impl());
  if (a.isa() == IsaLevel::kNone) GTEST_SKIP() << "no executable kernel on this machine";
  ASSERT_TRUE(a.impl().kernel("ret", &return_at_once).ok());
  EXPECT_EQ(b.stats().kernels_generated, 1u);
}

// Every cap on every machine: the level is the smaller of the two, the report tells the machine's.
TEST(Context, LevelIsTheMachinesCappedByMaxIsa) {
  const struct {
    jit::FakeCpu cpu;
    IsaLevel machine;
  } machines[] = {{test::amx_machine(), IsaLevel::kAmx},
                  {test::avx512_machine(), IsaLevel::kAvx512},
                  {test::old_machine(), IsaLevel::kNone}};
  for (const auto& machine : machines) {
    for (const IsaLevel cap : {IsaLevel::kNone, IsaLevel::kAvx512, IsaLevel::kAmx}) {
      SCOPED_TRACE(std::string(to_string(machine.machine)) + " capped by " + to_string(cap));
      ContextOptions options;
      options.max_isa = cap;
      const auto ctx = make_context(options, machine.cpu, jit::system_memory());
      ASSERT_TRUE(ctx.ok()) << ctx.status().message();
      EXPECT_EQ(ctx->isa(), machine.machine < cap ? machine.machine : cap);
      EXPECT_EQ(ctx->impl().features.level, ctx->isa());
      EXPECT_EQ(ctx->options().max_isa, cap);
    }
  }
}

TEST(Context, AmxPermissionIsAskedForOnlyWhenItCouldBeUsed) {
  const auto requests = [](const jit::FakeCpu& cpu, IsaLevel cap) {
    ContextOptions options;
    options.max_isa = cap;
    cpu.calls.clear();
    EXPECT_TRUE(make_context(options, cpu, jit::system_memory()).ok());
    return cpu.calls.size();
  };
  const jit::FakeCpu amx = test::amx_machine();
  EXPECT_EQ(requests(amx, IsaLevel::kNone), 0u);
  EXPECT_EQ(requests(amx, IsaLevel::kAvx512), 0u);
  EXPECT_GT(requests(amx, IsaLevel::kAmx), 0u);
  EXPECT_EQ(requests(test::avx512_machine(), IsaLevel::kAmx), 0u);
}

TEST(Context, RefusedAmxPermissionLeavesAvx512) {
  jit::FakeCpu cpu = test::amx_machine();
  cpu.request_error = EPERM;
  const auto ctx = make_context(ContextOptions(), cpu, jit::system_memory());
  ASSERT_TRUE(ctx.ok());
  EXPECT_EQ(ctx->isa(), IsaLevel::kAvx512);
}

TEST(Context, MakesKernelsOnceAndCounts) {
  const jit::FakeMemory memory;
  const auto ctx = make_context(ContextOptions(), jit::system_cpu(), memory);
  ASSERT_TRUE(ctx.ok());
  const auto first = ctx->impl().kernel("ret", &return_at_once);
  ASSERT_TRUE(first.ok()) << first.status().message();
  const auto second = ctx->impl().kernel("ret", &return_at_once);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(*first, *second);
  const ContextStats stats = ctx->stats();
  EXPECT_EQ(stats.kernels_generated, 1u);
  EXPECT_EQ(stats.kernel_cache_hits, 1u);
  EXPECT_GE(stats.code_bytes, 1u);
}

TEST(Context, DeniedExecutableMemoryIsNamed) {
  for (const int error : {EACCES, EPERM}) {
    jit::FakeMemory memory;
    memory.protect_error = error;
    memory.memfd_error = error;
    const auto ctx = make_context(ContextOptions(), jit::system_cpu(), memory);
    ASSERT_TRUE(ctx.ok()) << "the context itself needs no executable memory";
    const auto kernel = ctx->impl().kernel("ret", &return_at_once);
    ASSERT_FALSE(kernel.ok());
    EXPECT_EQ(kernel.status().code(), StatusCode::kJitUnavailable);
    EXPECT_EQ(memory.live_mappings.load(), 0);
    EXPECT_EQ(memory.open_files.load(), 0);
  }
}

TEST(Context, WithoutJitNoKernelIsMadeAndNoMemoryAskedFor) {
  const jit::FakeMemory memory;
  ContextOptions options;
  options.jit = false;
  const auto ctx = make_context(options, jit::system_cpu(), memory);
  ASSERT_TRUE(ctx.ok());
  bool made = false;
  const jit::KernelCache::Make make = [&made] {
    made = true;
    return return_at_once();
  };
  const auto kernel = ctx->impl().kernel("ret", make);
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.status().code(), StatusCode::kJitUnavailable);
  EXPECT_EQ(kernel.status().message(),
            "JIT unavailable: JIT is switched off (QUERN_JIT=0 or ContextOptions::jit = false)");
  EXPECT_FALSE(made);
  // Nor by the back door.
  EXPECT_FALSE(ctx->impl().kernels.get("ret", make).ok());
  EXPECT_EQ(memory.map_rw_calls + memory.protect_calls + memory.memfd_calls, 0);
}

TEST(Context, ThreadsShareOneGeneration) {
  const Context ctx;
  std::atomic<int> made{0};
  std::atomic<int> good{0};
  const jit::KernelCache::Make make = [&made] {
    made.fetch_add(1);
    return return_at_once();
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&, copy = ctx] { good += copy.impl().kernel("ret", make).ok(); });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(made.load(), 1);
  EXPECT_EQ(good.load(), 16);
}

TEST(Context, KernelsOutliveTheirContext) {
  jit::KernelHandle kernel;
  {
    const Context ctx;
    auto made = ctx.impl().kernel("ret", &return_at_once);
    ASSERT_TRUE(made.ok());
    kernel = *made;
  }
  kernel->call(0);
}

// ---- options ------------------------------------------------------------------------------------

void expect_refused(const ContextOptions& options, const std::string& message) {
  const auto ctx = Context::create(options);
  ASSERT_FALSE(ctx.ok());
  EXPECT_EQ(ctx.status().message(), message);
}

TEST(ContextOptions, BadOnesAreNamed) {
  ContextOptions options;
  options.max_isa = static_cast<IsaLevel>(3);
  expect_refused(
      options, "invalid argument: options.max_isa (3) must be kNone (0), kAvx512 (1) or kAmx (2)");
  options.max_isa = static_cast<IsaLevel>(-1);
  expect_refused(
      options, "invalid argument: options.max_isa (-1) must be kNone (0), kAvx512 (1) or kAmx (2)");

  options = ContextOptions();
  options.verbose = 16;
  expect_refused(options,
                 "invalid argument: options.verbose (16) has bits outside of kVerboseAll (15)");

  options = ContextOptions();
  test::ScriptedPool nobody(0);
  options.pool = &nobody;
  expect_refused(options, "invalid argument: options.pool: size() (0) must be at least 1");
}

TEST(ContextOptions, DumpDirectoryMustExistAndBeADirectory) {
  const std::string message =
      "invalid argument: options.jit_dump_dir must be an existing directory that can be written to";
  const TempDir dir;
  ContextOptions options;
  options.jit_dump_dir = dir.path();
  EXPECT_TRUE(Context::create(options).ok());
  options.jit_dump_dir = dir.path() + "/missing";
  expect_refused(options, message);
  const std::string file = dir.path() + "/file";
  close(open(file.c_str(), O_CREAT | O_WRONLY, 0600));
  options.jit_dump_dir = file;
  expect_refused(options, message);
  options.jit_dump_dir = file + "/below";
  expect_refused(options, message);
  const std::string read_only = dir.path() + "/read_only";
  ASSERT_EQ(mkdir(read_only.c_str(), 0500), 0);
  if (access(read_only.c_str(), W_OK) != 0) {  // root may write everywhere
    options.jit_dump_dir = read_only;
    expect_refused(options, message);
  }
}

TEST(ContextOptions, DumpWritesTheKernel) {
  const TempDir dir;
  ContextOptions options;
  options.jit_dump_dir = dir.path();
  const auto ctx = Context::create(options);
  ASSERT_TRUE(ctx.ok());
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  ASSERT_TRUE(ctx->impl().kernel("ret", &return_at_once).ok());
  EXPECT_EQ(std::filesystem::file_size(dir.path() + "/ret.bin"), 1u);
}

TEST(ContextOptions, FailingDumpIsReportedAndHarmless) {
  Lines lines;
  ContextOptions options;
  options.sink = &collect;
  options.sink_user = &lines;
  auto dir = std::make_unique<TempDir>();
  options.jit_dump_dir = dir->path();
  const auto ctx = Context::create(options);
  ASSERT_TRUE(ctx.ok());
  dir.reset();
  EXPECT_TRUE(ctx->impl().kernel("ret", &return_at_once).ok());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[2].rfind("quern_verbose,v1,error,jit_dump,-,-,-,-,", 0), 0u) << lines[2];
}

TEST(ContextOptions, CreateLinesNameEachKernelOnce) {
  Lines lines;
  ContextOptions options;
  options.verbose = kVerboseCreate;
  options.sink = &collect;
  options.sink_user = &lines;
  const auto ctx = Context::create(options);
  ASSERT_TRUE(ctx.ok());
  EXPECT_TRUE(lines.empty());
  ASSERT_TRUE(ctx->impl().kernel("ret", &return_at_once).ok());
  ASSERT_TRUE(ctx->impl().kernel("ret", &return_at_once).ok());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "quern_verbose,v1,template,op,kernel,problem,threads,ms,detail");
  EXPECT_EQ(lines[2].rfind("quern_verbose,v1,create,-,ret,-,-,", 0), 0u) << lines[2];
  EXPECT_EQ(lines[2].substr(lines[2].rfind(',')), ",code_bytes:1");
}

class NamedTuning final : public TuningSource {
 public:
  bool lookup(const Problem&, GemmBlocking*) const noexcept override { return false; }
  const char* name() const noexcept override { return "my_db"; }
};

TEST(ContextOptions, InfoLineShowsEveryOption) {
  Lines lines;
  const NamedTuning tuning;
  test::ScriptedPool pool(3);
  ContextOptions options;
  options.pool = &pool;
  options.max_isa = IsaLevel::kAvx512;
  options.verbose = kVerboseCreate | kVerboseError;
  options.sink = &collect;
  options.sink_user = &lines;
  options.tuning = &tuning;
  const auto ctx = make_context(options, test::avx512_machine(), jit::system_memory());
  ASSERT_TRUE(ctx.ok());
  ASSERT_TRUE(ctx->impl().kernel("ret", &return_at_once).ok());
  EXPECT_EQ(lines.at(1),
            "quern_verbose,v1,info,context,-,-,-,-,cpu:Mock AVX-512/machine:avx512/"
            "max_isa:avx512/jit:1/verbose:5/tuning:my_db/thr:3/jit_profile:0/dump:off");
}

}  // namespace
}  // namespace quern
