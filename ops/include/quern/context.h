#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quern/export.h"
#include "quern/isa.h"
#include "quern/status.h"
#include "quern/thread_pool.h"

namespace quern {
inline namespace v0 {

class TuningSource;
struct ContextImpl;

/// Which verbose lines are produced (bits).
enum VerboseFlags : uint32_t {
  kVerboseNone = 0,
  kVerboseError = 1,     ///< calls that failed
  kVerboseDispatch = 2,  ///< candidates refused, with the reason
  kVerboseCreate = 4,    ///< plans created, kernels generated
  kVerboseExec = 8,      ///< each run, with its time
  kVerboseAll = 15,
};

/// Who is told of generated kernels (bits), for profilers and debuggers.
enum JitProfileFlags : uint32_t {
  kJitProfileNone = 0,
  kJitProfilePerf = 1,     ///< /tmp/perf-PID.map: names for `perf report`
  kJitProfileJitdump = 2,  ///< jit-PID.dump: names, code and sections for `perf inject --jit`
  kJitProfileGdb = 4,      ///< GDB's JIT interface: names and backtraces in gdb and lldb
  kJitProfileAll = 7,
};

/// Gets one complete line without the newline. May be called from any thread that calls into quern,
/// never from two at once.
using VerboseSink = void (*)(void* user, const char* line);

struct ContextOptions {
  ThreadPool* pool = nullptr;  ///< not owned, must outlive the plans; null: serial
  IsaLevel max_isa = IsaLevel::kAmx;
  bool jit =
      true;  ///< false: executable memory is never asked for, every create() fails and says so
  uint32_t verbose = kVerboseNone;
  VerboseSink sink = nullptr;  ///< null: standard error
  void* sink_user = nullptr;
  const TuningSource* tuning = nullptr;  ///< not owned; null: compiled-in defaults
  /// Existing directory for generated code (.bin, .json, .asm); empty: none.
  std::string jit_dump_dir;
  /// The jitdump goes into jit_dump_dir, or the working directory where that is empty.
  uint32_t jit_profile = kJitProfileNone;
};

/// Counters since the context was made.
struct ContextStats {
  uint64_t kernels_generated = 0;
  uint64_t kernel_cache_hits = 0;
  uint64_t code_bytes = 0;
  uint64_t generate_ns = 0;
};

/// What plans are created from: the machine, the caps, the threads and the kernel cache. A cheap
/// handle; copies share everything. Thread-safe. `Context{}` reads no environment and opens
/// nothing.
class QUERN_API Context {
 public:
  Context() noexcept;
  /// Options at their defaults but for the pool. A constructor has no Result to return, so what is
  /// wrong (pool->size() < 1, no memory) is in status().
  explicit Context(ThreadPool* pool) noexcept;
  static Result<Context> create(const ContextOptions& options);
  /// As create, with QUERN_MAX_ISA (amx, avx512, none), QUERN_JIT (0, 1), QUERN_JIT_DUMP
  /// (directory), QUERN_JIT_PROFILE (off, or perf,jitdump,gdb,all joined by commas) and
  /// QUERN_VERBOSE (off, or error,dispatch,create,exec,all joined by commas) applied on top of
  /// `base`. An unknown value is an error that names the variable. The only place in quern that
  /// reads the environment.
  static Result<Context> from_environment(const ContextOptions& base = {});

  /// Why no plan can be created from this context, and what every create() with it returns. Not ok
  /// for one that was moved from, or whose constructor had to give up; such a context is serial and
  /// has level kNone, and nothing that can be asked of it crashes.
  Status status() const noexcept;
  ThreadPool& pool() const noexcept;
  /// The level plans may use: the machine's, capped by max_isa.
  IsaLevel isa() const noexcept;
  const IsaReport& isa_report() const noexcept;
  const ContextOptions& options() const noexcept;
  ContextStats stats() const noexcept;

  /// For quern's own sources, where status() is ok.
  ContextImpl& impl() const noexcept { return *impl_; }

 private:
  friend struct ContextImpl;
  explicit Context(std::shared_ptr<ContextImpl> impl) noexcept;
  std::shared_ptr<ContextImpl> impl_;
  Status status_;  ///< why impl_ is null from the start
};

}  // namespace v0
}  // namespace quern
