#include "quern/context.h"

#include <errno.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "ops/context_impl.h"
#include "ops/environment.h"
#include "ops/no_throw.h"
#include "quern/tuning.h"

namespace quern::inline v0 {
namespace {

constexpr const char* kNoMemory = "no memory for a context";

// Behind the kernel cache of a context whose JIT is off: even a request that went round
// ContextImpl::kernel would get no page.
class NoMemory final : public jit::MemoryApi {
 public:
  size_t page_bytes() const noexcept override { return 4096; }
  int map_rw(size_t, void**) const noexcept override { return EPERM; }
  int protect_rx(void*, size_t) const noexcept override { return EPERM; }
  int unmap(void*, size_t) const noexcept override { return EPERM; }
  int create_memfd(unsigned, int*) const noexcept override { return EPERM; }
  int write_fd(int, const uint8_t*, size_t) const noexcept override { return EPERM; }
  int map_fd_rx(int, size_t, void**) const noexcept override { return EPERM; }
  int close_fd(int) const noexcept override { return EPERM; }
  bool may_execute(const void*) const noexcept override { return false; }
};
// None of these is a static of a function, whose guard a forked child could find taken for ever.
constinit const NoMemory kNoMemoryApi;
constinit SerialPool serial_pool;  // has no state
const IsaReport kNoReport;
const ContextOptions kDefaultOptions;

// Tells the verbose sink about each kernel.
class CreateLines final : public jit::CodeListener {
 public:
  explicit CreateLines(Verbose* verbose) : verbose_(*verbose) {}
  jit::KernelRecord published(const jit::GeneratedCode&, const jit::Kernel& kernel) override {
    VerboseLine line;
    line.event = kVerboseCreate;
    line.kernel = kernel.name;
    line.ns = static_cast<int64_t>(kernel.generate_ns);
    const std::string detail = "code_bytes:" + std::to_string(kernel.code_bytes);
    line.detail = detail;
    verbose_.write(line);
    return nullptr;
  }

 private:
  Verbose& verbose_;
};

std::string about(const ContextOptions& options, const IsaReport& report, int threads) {
  std::string s = "cpu:" + report.cpu;
  s += "/machine:" + std::string(to_string(report.level));
  s += "/max_isa:" + std::string(to_string(options.max_isa));
  s += "/jit:" + std::to_string(options.jit);
  s += "/verbose:" + std::to_string(options.verbose);
  s += "/tuning:" + std::string(options.tuning == nullptr ? "defaults" : options.tuning->name());
  s += "/thr:" + std::to_string(threads);
  s += "/jit_profile:" + std::to_string(options.jit_profile);
  s += "/dump:" + (options.jit_dump_dir.empty() ? std::string("off") : options.jit_dump_dir);
  return s;
}

std::string jitdump_dir(const ContextOptions& options) {
  return options.jit_dump_dir.empty() ? "." : options.jit_dump_dir;
}

jit::CodeRegistryOptions registry_options(const ContextOptions& options, Verbose* verbose) {
  jit::CodeRegistryOptions out;
  if (options.jit) {
    out.dump_dir = options.jit_dump_dir;
    out.perf_map = (options.jit_profile & kJitProfilePerf) != 0;
    if ((options.jit_profile & kJitProfileJitdump) != 0) out.jitdump_dir = jitdump_dir(options);
    out.gdb = (options.jit_profile & kJitProfileGdb) != 0;
  }
  out.on_error = [verbose](const std::string& line) { verbose->write_always("jit_dump", line); };
  return out;
}

Status validate(const ContextOptions& o) {
  if (o.pool != nullptr && o.pool->size() < 1) {
    return Status(StatusCode::kInvalidArgument, "options.pool: size() ({0}) must be at least 1",
                  o.pool->size());
  }
  if (o.max_isa < IsaLevel::kNone || o.max_isa > IsaLevel::kAmx) {
    return Status(StatusCode::kInvalidArgument,
                  "options.max_isa ({0}) must be kNone (0), kAvx512 (1) or kAmx (2)",
                  static_cast<int64_t>(o.max_isa));
  }
  if ((o.verbose & ~static_cast<uint32_t>(kVerboseAll)) != 0) {
    return Status(StatusCode::kInvalidArgument,
                  "options.verbose ({0}) has bits outside of kVerboseAll ({1})", o.verbose,
                  kVerboseAll);
  }
  if (!o.jit_dump_dir.empty() && !is_writable_directory(o.jit_dump_dir)) {
    return Status(StatusCode::kInvalidArgument,
                  "options.jit_dump_dir must be an existing directory that can be written to");
  }
  if ((o.jit_profile & ~static_cast<uint32_t>(kJitProfileAll)) != 0) {
    return Status(StatusCode::kInvalidArgument,
                  "options.jit_profile ({0}) has bits outside of kJitProfileAll ({1})",
                  o.jit_profile, kJitProfileAll);
  }
  if ((o.jit_profile & kJitProfileJitdump) != 0 && !is_writable_directory(jitdump_dir(o))) {
    return Status(StatusCode::kInvalidArgument,
                  "options.jit_profile asks for a jitdump, which without jit_dump_dir goes to the "
                  "working directory, and that cannot be written to");
  }
  return Status();
}

}  // namespace

ContextImpl::ContextImpl(const ContextOptions& opts, const jit::CpuSource& cpu,
                         const jit::MemoryApi& memory)
    : options(opts),
      pool(opts.pool != nullptr ? opts.pool : &serial),
      features(jit::detect(cpu, opts.max_isa, &report)),
      level(std::min(report.level, opts.max_isa)),
      verbose(opts.verbose, opts.sink, opts.sink_user, about(opts, report, pool->size())),
      registry(registry_options(opts, &verbose)),
      kernels(jit::CodeMemory(opts.jit ? memory : kNoMemoryApi), &registry) {
  if (verbose.on(kVerboseCreate)) registry.add(std::make_shared<CreateLines>(&verbose));
}

Result<jit::KernelHandle> ContextImpl::kernel(const std::string& name,
                                              const jit::KernelCache::Make& make) noexcept {
  if (!options.jit) {
    return Status(StatusCode::kJitUnavailable,
                  "JIT is switched off (QUERN_JIT=0 or ContextOptions::jit = false)");
  }
  return kernels.get(name, make);
}

Result<Context> ContextImpl::create(const ContextOptions& options, const jit::CpuSource& cpu,
                                    const jit::MemoryApi& memory) {
  if (const Status status = validate(options); !status.ok()) return status;
  return no_throw(kNoMemory, [&]() -> Result<Context> {
    return Context(std::make_shared<ContextImpl>(options, cpu, memory));
  });
}

Result<Context> make_context(const ContextOptions& options, const jit::CpuSource& cpu,
                             const jit::MemoryApi& memory) {
  return ContextImpl::create(options, cpu, memory);
}

Context::Context() noexcept : Context(static_cast<ThreadPool*>(nullptr)) {}

Context::Context(ThreadPool* pool) noexcept {
  ContextOptions options;
  options.pool = pool;
  Result<Context> made = create(options);
  if (made.ok()) {
    impl_ = std::move(made->impl_);
  } else {
    status_ = made.status();
  }
}

Context::Context(std::shared_ptr<ContextImpl> impl) noexcept : impl_(std::move(impl)) {}

Result<Context> Context::create(const ContextOptions& options) {
  return make_context(options, jit::process_cpu(), jit::system_memory());
}

Result<Context> Context::from_environment(const ContextOptions& base) {
  return no_throw(kNoMemory, [&]() -> Result<Context> {
    ContextOptions options = base;
    if (const Status status = apply_environment(&options); !status.ok()) return status;
    return create(options);
  });
}

Status Context::status() const noexcept {
  if (impl_ != nullptr || !status_.ok()) return status_;
  return Status(StatusCode::kInvalidArgument, "this Context is empty: it was moved from");
}

ThreadPool& Context::pool() const noexcept {
  return impl_ == nullptr ? serial_pool : *impl_->pool;
}
IsaLevel Context::isa() const noexcept {
  return impl_ == nullptr ? IsaLevel::kNone : impl_->level;
}
const IsaReport& Context::isa_report() const noexcept {
  return impl_ == nullptr ? kNoReport : impl_->report;
}
const ContextOptions& Context::options() const noexcept {
  return impl_ == nullptr ? kDefaultOptions : impl_->options;
}

ContextStats Context::stats() const noexcept {
  if (impl_ == nullptr) return {};
  const jit::KernelCacheStats s = impl_->kernels.stats();
  ContextStats out;
  out.kernels_generated = s.kernels;
  out.kernel_cache_hits = s.hits;
  out.code_bytes = s.code_bytes;
  out.generate_ns = s.generate_ns;
  return out;
}

}  // namespace quern::inline v0
