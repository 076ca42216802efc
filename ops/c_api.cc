// Version, status, pools, contexts, packed weights. The ops are in c_api_ops.cc.
#include "quern/c_api.h"

#include "ops/c_api_support.h"
#include "ops/status_text.h"
#include "ops/text_writer.h"
#include "quern/isa.h"

namespace quern::inline v0 {
namespace {

// The numbers of the C enums are those of the C++ ones.
static_assert(QUERN_BAD_FILE == static_cast<int>(StatusCode::kBadFile));
static_assert(QUERN_IO_ERROR == static_cast<int>(StatusCode::kIoError));
static_assert(QUERN_INTERNAL == static_cast<int>(StatusCode::kInternal));
static_assert(QUERN_JIT_UNAVAILABLE == static_cast<int>(StatusCode::kJitUnavailable));
static_assert(QUERN_OUT_OF_MEMORY == static_cast<int>(StatusCode::kOutOfMemory));
static_assert(QUERN_TOO_LARGE == static_cast<int>(StatusCode::kTooLarge));
static_assert(QUERN_UNSUPPORTED == static_cast<int>(StatusCode::kUnsupported));
static_assert(QUERN_INVALID_ARGUMENT == static_cast<int>(StatusCode::kInvalidArgument));
static_assert(QUERN_F32 == static_cast<int>(DType::kF32));
static_assert(QUERN_BF16 == static_cast<int>(DType::kBF16));
static_assert(QUERN_F16 == static_cast<int>(DType::kF16));
static_assert(QUERN_S8 == static_cast<int>(DType::kS8));
static_assert(QUERN_U8 == static_cast<int>(DType::kU8));
static_assert(QUERN_S32 == static_cast<int>(DType::kS32));
static_assert(QUERN_ISA_AMX == static_cast<int>(IsaLevel::kAmx));
static_assert(QUERN_ISA_AVX512 == static_cast<int>(IsaLevel::kAvx512));
static_assert(QUERN_VERBOSE_ERROR == uint32_t{kVerboseError});
static_assert(QUERN_VERBOSE_DISPATCH == uint32_t{kVerboseDispatch});
static_assert(QUERN_VERBOSE_CREATE == uint32_t{kVerboseCreate});
static_assert(QUERN_VERBOSE_EXEC == uint32_t{kVerboseExec});
static_assert(QUERN_VERBOSE_ALL == uint32_t{kVerboseAll});
static_assert(QUERN_JIT_PROFILE_PERF == uint32_t{kJitProfilePerf});
static_assert(QUERN_JIT_PROFILE_JITDUMP == uint32_t{kJitProfileJitdump});
static_assert(QUERN_JIT_PROFILE_GDB == uint32_t{kJitProfileGdb});
static_assert(std::is_same_v<quern_phase_fn, ThreadPool::PhaseFn>);

/// The caller's threads.
class CallbackPool final : public ThreadPool {
 public:
  explicit CallbackPool(const quern_pool_callbacks& callbacks) : callbacks_(callbacks) {}
  ~CallbackPool() override {
    if (callbacks_.release != nullptr) callbacks_.release(callbacks_.user);
  }
  CallbackPool(const CallbackPool&) = delete;
  CallbackPool& operator=(const CallbackPool&) = delete;

  int size() const noexcept override { return callbacks_.threads; }
  void run(int phases, PhaseFn fn, void* ctx) noexcept override {
    callbacks_.run(callbacks_.user, phases, fn, ctx);
  }

 private:
  const quern_pool_callbacks callbacks_;
};

Status check_callbacks(const quern_pool_callbacks& c) noexcept {
  if (const Status s = c_reserved(c.reserved, "callbacks"); !s.ok()) return s;
  if (c.run == nullptr) return c_invalid("{s} is null", "callbacks.run");
  if (c.threads < 1) {
    return c_invalid("{s} ({0}) must be at least 1", "callbacks.threads", c.threads);
  }
  return {};
}

Status read_options(const quern_context_options* from, ContextOptions* to,
                    std::shared_ptr<ThreadPool>* pool, bool* from_environment) {
  if (from == nullptr) return {};
  quern_context_options o = {};
  if (const Status s = c_read(from, "options", &o); !s.ok()) return s;
  bool limit = false, jit_off = false;
  const Status flags =
      c_first(c_flag(o.limit_isa, "options.limit_isa", &limit),
              c_flag(o.jit_off, "options.jit_off", &jit_off),
              c_flag(o.from_environment, "options.from_environment", from_environment));
  if (!flags.ok()) return flags;
  if (o.pool != nullptr) *pool = o.pool->pool;
  to->pool = pool->get();
  if (limit) to->max_isa = static_cast<IsaLevel>(o.max_isa);
  to->jit = !jit_off;
  to->verbose = o.verbose;
  to->jit_profile = o.jit_profile;
  to->sink = o.sink;
  to->sink_user = o.sink_user;
  if (o.jit_dump_dir != nullptr) to->jit_dump_dir = o.jit_dump_dir;
  return {};
}

Status no_context() noexcept {
  return c_invalid("{s} is null", "context");
}

}  // namespace
}  // namespace quern::inline v0

using namespace quern;  // NOLINT(google-build-using-namespace): every function below is C

const char* quern_version(void) {
  return QUERN_VERSION;
}

int32_t quern_version_number(void) {
  return QUERN_VERSION_MAJOR * 1000000 + QUERN_VERSION_MINOR * 1000 + QUERN_VERSION_PATCH;
}

size_t quern_status_message(const quern_status* status, char* buffer, size_t size) {
  Status s;
  // A code of zero is enough: a zeroed struct holds no Status.
  if (status != nullptr && status->code != QUERN_OK) {
    std::memcpy(static_cast<void*>(&s), status->opaque, sizeof s);
  }
  const size_t room = buffer != nullptr && size > 0 ? size - 1 : 0;
  TextWriter out(buffer, room);
  write_message(s, &out);
  if (buffer != nullptr && size > 0) buffer[out.size()] = '\0';
  return out.needed();
}

const char* quern_status_code_name(int32_t code) {
  return to_string(static_cast<StatusCode>(code));
}

void quern_string_free(char* string) {
  delete[] string;
}

int32_t quern_pool_create(int32_t threads, int32_t pin, quern_pool** out, quern_status* status) {
  return c_create(out, status, [&](std::unique_ptr<quern_pool>* handle) -> Status {
    bool pinned = false;
    if (const Status s = c_flag(pin, "pin", &pinned); !s.ok()) return s;
    auto pool = PersistentPool::create(threads, pinned);
    if (!pool.ok()) return pool.status();
    *handle = std::make_unique<quern_pool>();
    (*handle)->pool = std::move(*pool);
    return {};
  });
}

int32_t quern_pool_create_custom(const quern_pool_callbacks* callbacks, quern_pool** out,
                                 quern_status* status) {
  return c_create(out, status, [&](std::unique_ptr<quern_pool>* handle) -> Status {
    quern_pool_callbacks c = {};
    if (const Status s = c_read(callbacks, "callbacks", &c); !s.ok()) return s;
    if (const Status s = check_callbacks(c); !s.ok()) return s;
    *handle = std::make_unique<quern_pool>();
    (*handle)->pool = std::make_shared<CallbackPool>(c);
    return {};
  });
}

int32_t quern_pool_size(const quern_pool* pool) {
  return pool == nullptr ? 0 : pool->pool->size();
}

void quern_pool_destroy(quern_pool* pool) {
  delete pool;
}

int32_t quern_context_create(const quern_context_options* options, quern_context** out,
                             quern_status* status) {
  return c_create(out, status, [&](std::unique_ptr<quern_context>* handle) -> Status {
    ContextOptions o;
    std::shared_ptr<ThreadPool> pool;
    bool from_environment = false;
    if (const Status s = read_options(options, &o, &pool, &from_environment); !s.ok()) return s;
    const auto context = from_environment ? Context::from_environment(o) : Context::create(o);
    if (!context.ok()) return context.status();
    *handle = std::unique_ptr<quern_context>(new quern_context{std::move(pool), *context});
    return {};
  });
}

void quern_context_destroy(quern_context* context) {
  delete context;
}

int32_t quern_context_isa(const quern_context* context, quern_isa_info* out, quern_status* status) {
  return c_call(status, [&]() -> Status {
    if (context == nullptr) return no_context();
    const IsaReport& report = context->context.isa_report();
    quern_isa_info info = {};
    info.machine = static_cast<int32_t>(report.level);
    info.usable = static_cast<int32_t>(context->context.isa());
    info.avx512_bf16 = report.avx512_bf16;
    info.avx512_vbmi = report.avx512_vbmi;
    info.avx512_fp16 = report.avx512_fp16;
    info.stages = static_cast<int32_t>(report.stages.size());
    info.cpu = report.cpu.c_str();
    return c_write(info, "out", out);
  });
}

int32_t quern_context_isa_stage(const quern_context* context, int32_t index, quern_isa_stage* out,
                                quern_status* status) {
  return c_call(status, [&]() -> Status {
    if (context == nullptr) return no_context();
    const auto& stages = context->context.isa_report().stages;
    if (index < 0 || static_cast<size_t>(index) >= stages.size()) {
      return c_invalid("{s} ({0}) must be in [0, {1})", "index", index,
                       static_cast<int64_t>(stages.size()));
    }
    const IsaStage& from = stages[static_cast<size_t>(index)];
    quern_isa_stage stage = {};
    stage.name = from.name.c_str();
    stage.detail = from.detail.c_str();
    stage.passed = from.passed;
    return c_write(stage, "out", out);
  });
}

const char* quern_isa_name(int32_t level) {
  return to_string(static_cast<IsaLevel>(level));
}

int32_t quern_context_get_stats(const quern_context* context, quern_context_stats* out,
                                quern_status* status) {
  return c_call(status, [&]() -> Status {
    if (context == nullptr) return no_context();
    const ContextStats from = context->context.stats();
    quern_context_stats stats = {};
    stats.kernels_generated = from.kernels_generated;
    stats.kernel_cache_hits = from.kernel_cache_hits;
    stats.code_bytes = from.code_bytes;
    stats.generate_ns = from.generate_ns;
    return c_write(stats, "out", out);
  });
}

int32_t quern_packed_weights_get_info(const quern_packed_weights* weights,
                                      quern_packed_weights_info* out, quern_status* status) {
  return c_call(status, [&]() -> Status {
    if (weights == nullptr) return c_invalid("{s} is null", "weights");
    const PackedWeights& w = weights->weights;
    quern_packed_weights_info info = {};
    info.n = w.n();
    info.k = w.k();
    info.panel_bytes = w.panel_bytes();
    info.bytes = w.bytes();
    info.data = w.data();
    info.layout = static_cast<uint32_t>(w.layout());
    info.layout_name = to_string(w.layout());
    info.batch = w.batch();
    return c_write(info, "out", out);
  });
}

int32_t quern_packed_weights_save(const quern_packed_weights* weights, const char* path,
                                  quern_status* status) {
  return c_call(status, [&]() -> Status {
    if (weights == nullptr) return c_invalid("{s} is null", "weights");
    if (path == nullptr) return c_invalid("{s} is null", "path");
    return weights->weights.save(path);
  });
}

int32_t quern_packed_weights_map(const char* path, int32_t verify, quern_packed_weights** out,
                                 quern_status* status) {
  return c_create(out, status, [&](std::unique_ptr<quern_packed_weights>* handle) -> Status {
    if (path == nullptr) return c_invalid("{s} is null", "path");
    MapWeightsOptions options;
    if (const Status s = c_flag(verify, "verify", &options.verify); !s.ok()) return s;
    const auto weights = PackedWeights::map(path, options);
    if (!weights.ok()) return weights.status();
    *handle = std::make_unique<quern_packed_weights>();
    (*handle)->weights = *weights;
    return {};
  });
}

void quern_packed_weights_destroy(quern_packed_weights* weights) {
  delete weights;
}
