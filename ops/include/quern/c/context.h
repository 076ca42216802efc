#ifndef QUERN_C_CONTEXT_H
#define QUERN_C_CONTEXT_H

/* Threads and the context. Conventions: quern/c_api.h. */

#include "quern/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Threads: where an op's threads come from. Without a pool everything is serial. */

typedef struct quern_pool quern_pool;
typedef void (*quern_phase_fn)(void* ctx, int32_t phase, int32_t tid, int32_t threads);

typedef struct quern_pool_callbacks {
  size_t struct_size;
  void* user;
  int32_t threads; /* at least 1, never changes */
  int32_t reserved;
  /* Calls fn(ctx, p, tid, threads) for every p in [0, phases) and every tid in [0, threads). All of
   * phase p is done and visible before phase p + 1 begins. A loop is legal. Must not throw. */
  void (*run)(void* user, int32_t phases, quern_phase_fn fn, void* ctx);
  /* Called once, when nothing uses the pool any more. May be null. */
  void (*release)(void* user);
} quern_pool_callbacks;

/* quern's own: threads - 1 workers that spin for a moment and then sleep. pin: 0 or 1. */
QUERN_API int32_t quern_pool_create(int32_t threads, int32_t pin, quern_pool** out,
                                    quern_status* status);
/* The caller's. */
QUERN_API int32_t quern_pool_create_custom(const quern_pool_callbacks* callbacks, quern_pool** out,
                                           quern_status* status);
QUERN_API int32_t quern_pool_size(const quern_pool* pool); /* 0 for null */
QUERN_API void quern_pool_destroy(quern_pool* pool);

/* ---- Context: the machine, the caps, the threads and the kernel cache */

typedef struct quern_context quern_context;

enum { QUERN_ISA_NONE = 0, QUERN_ISA_AVX512 = 1, QUERN_ISA_AMX = 2 };
enum {
  QUERN_VERBOSE_NONE = 0,
  QUERN_VERBOSE_ERROR = 1,
  QUERN_VERBOSE_DISPATCH = 2,
  QUERN_VERBOSE_CREATE = 4,
  QUERN_VERBOSE_EXEC = 8,
  QUERN_VERBOSE_ALL = 15
};

enum { /* who is told of generated kernels */
       QUERN_JIT_PROFILE_NONE = 0,
       QUERN_JIT_PROFILE_PERF = 1,
       QUERN_JIT_PROFILE_JITDUMP = 2,
       QUERN_JIT_PROFILE_GDB = 4
};

typedef struct quern_context_options {
  size_t struct_size;
  const quern_pool* pool;   /* null: serial */
  int32_t limit_isa;        /* 1: plans use max_isa at most */
  int32_t max_isa;          /* QUERN_ISA_... */
  int32_t jit_off;          /* 1: never ask for executable memory; every plan says so */
  int32_t from_environment; /* 1: QUERN_MAX_ISA, QUERN_JIT, ... on top of these options */
  uint32_t verbose;         /* QUERN_VERBOSE_... */
  uint32_t jit_profile;     /* QUERN_JIT_PROFILE_... */
  void (*sink)(void* user, const char* line); /* null: standard error */
  void* sink_user;
  const char* jit_dump_dir; /* null: no dumps */
} quern_context_options;

/* options may be null: the defaults. */
QUERN_API int32_t quern_context_create(const quern_context_options* options, quern_context** out,
                                       quern_status* status);
QUERN_API void quern_context_destroy(quern_context* context);

typedef struct quern_isa_info {
  size_t struct_size;
  int32_t machine; /* QUERN_ISA_...: what this machine can do */
  int32_t usable;  /* and what plans may use */
  int32_t avx512_bf16;
  int32_t avx512_vbmi;
  int32_t avx512_fp16;
  int32_t stages;  /* of the detection, see quern_context_isa_stage */
  const char* cpu; /* brand string; lives as long as the context */
} quern_isa_info;

/* One step of the detection, for people who ask why not. The strings live as long as the context.
 */
typedef struct quern_isa_stage {
  size_t struct_size;
  const char* name;
  const char* detail;
  int32_t passed;
  int32_t reserved;
} quern_isa_stage;

QUERN_API int32_t quern_context_isa(const quern_context* context, quern_isa_info* out,
                                    quern_status* status);
QUERN_API int32_t quern_context_isa_stage(const quern_context* context, int32_t index,
                                          quern_isa_stage* out, quern_status* status);
/* "none", "avx512", "amx". For ever. */
QUERN_API const char* quern_isa_name(int32_t level);

typedef struct quern_context_stats {
  size_t struct_size;
  uint64_t kernels_generated;
  uint64_t kernel_cache_hits;
  uint64_t code_bytes;
  uint64_t generate_ns;
} quern_context_stats;

QUERN_API int32_t quern_context_get_stats(const quern_context* context, quern_context_stats* out,
                                          quern_status* status);

#ifdef __cplusplus
}
#endif

#endif /* QUERN_C_CONTEXT_H */
