#ifndef QUERN_C_API_H
#define QUERN_C_API_H

/* quern for programs that are not C++: C99, opaque handles, a thin shell over the classes of
 * quern/quern.h, which say what the operations mean. Only what is different here is described.
 *
 * Errors. A function that can fail returns a code, QUERN_OK (0) or one of those below, and where
 *   `status` is not null leaves there what quern_status_message() makes a sentence of. No exception
 *   comes out. A null handle or a null required argument is QUERN_INVALID_ARGUMENT.
 * Handles. *out is set to a new handle on success and to null on failure. Each is given back with
 *   its _destroy function, in any order (what a plan needs lives as long as the plan); destroying
 *   null does nothing. A handle may be used from any number of threads at once, but not while it is
 *   being destroyed.
 * Structs. Zero all of it, set struct_size to its sizeof, then the fields you need: zero is always
 *   a legal value. A later version may add fields at the end; a program compiled against this one
 *   goes on working, and a field that is set but unknown to the library is an error, not ignored.
 * Strings. `const char*` results are owned by the library or by the handle, and say so; `char*`
 *   results are yours, give them back to quern_string_free(). */

#include <stddef.h>
#include <stdint.h>

#include "quern/export.h"
#include "quern/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version: of the library; QUERN_VERSION in quern/version.h is that of the header. */

/* "0.1.0". For ever. */
QUERN_API const char* quern_version(void);
/* major * 1000000 + minor * 1000 + patch */
QUERN_API int32_t quern_version_number(void);

/* ---- Status */

enum {
  QUERN_OK = 0,
  QUERN_INVALID_ARGUMENT = 1,
  QUERN_UNSUPPORTED = 2,
  QUERN_TOO_LARGE = 3,
  QUERN_OUT_OF_MEMORY = 4,
  QUERN_JIT_UNAVAILABLE = 5,
  QUERN_INTERNAL = 6,
  QUERN_IO_ERROR = 7,
  QUERN_BAD_FILE = 8
};

/* A value: copy it freely. Zeroed it means success. Uninitialised memory is fine as an output. */
typedef struct quern_status {
  int32_t code;
  int32_t reserved;
  uint64_t opaque[31];
} quern_status;

/* Writes at most size - 1 bytes of the message and a NUL (nothing where size is 0) and returns the
 * length of the whole message, as snprintf does. Null is success: "ok". */
QUERN_API size_t quern_status_message(const quern_status* status, char* buffer, size_t size);
/* "invalid argument", "unsupported", ... For ever. */
QUERN_API const char* quern_status_code_name(int32_t code);

QUERN_API void quern_string_free(char* string);

/* ---- Element types and operands */

enum { QUERN_F32 = 0, QUERN_BF16 = 1, QUERN_F16 = 2, QUERN_S8 = 3, QUERN_U8 = 4, QUERN_S32 = 5 };

/* Row-major and not owned. row_stride is in elements; 0 means dense (= cols). Where an operand is
 * not wanted, all of it is zero. */
typedef struct quern_matrix {
  const void* data;
  int32_t dtype;
  int32_t reserved;
  int64_t rows;
  int64_t cols;
  int64_t row_stride;
} quern_matrix;

typedef struct quern_mutable_matrix {
  void* data;
  int32_t dtype;
  int32_t reserved;
  int64_t rows;
  int64_t cols;
  int64_t row_stride;
} quern_mutable_matrix;

typedef struct quern_vector {
  const void* data;
  int32_t dtype;
  int32_t reserved;
  int64_t size;
} quern_vector;

typedef struct quern_mutable_vector {
  void* data;
  int32_t dtype;
  int32_t reserved;
  int64_t size;
} quern_mutable_vector;

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

/* ---- Packed weights: from a plan's _pack function, or from a file */

typedef struct quern_packed_weights quern_packed_weights;

typedef struct quern_packed_weights_info {
  size_t struct_size;
  int64_t n;
  int64_t k;
  int64_t panel_bytes;
  uint64_t bytes;
  const void* data; /* lives as long as the weights */
  uint32_t layout;  /* quern::WeightLayout */
  uint32_t reserved;
  const char* layout_name; /* for ever */
} quern_packed_weights_info;

QUERN_API int32_t quern_packed_weights_get_info(const quern_packed_weights* weights,
                                                quern_packed_weights_info* out,
                                                quern_status* status);
QUERN_API int32_t quern_packed_weights_save(const quern_packed_weights* weights, const char* path,
                                            quern_status* status);
/* verify: 1 reads the whole file and compares its checksum. */
QUERN_API int32_t quern_packed_weights_map(const char* path, int32_t verify,
                                           quern_packed_weights** out, quern_status* status);
/* Plans do not own weights: keep them as long as they are run with. */
QUERN_API void quern_packed_weights_destroy(quern_packed_weights* weights);

/* ---- quantize_rows */

typedef struct quern_quantize_rows quern_quantize_rows;

typedef struct quern_quantize_rows_desc {
  size_t struct_size;
  int64_t k;
  int64_t group; /* columns a sum; 0: one sum a row */
  int32_t a;     /* QUERN_F32 or QUERN_BF16 */
  int32_t reserved;
} quern_quantize_rows_desc;

typedef struct quern_quantize_rows_args {
  size_t struct_size;
  quern_matrix a;
  quern_mutable_matrix q;
  quern_mutable_vector scale;
  quern_mutable_matrix sums; /* zero: not wanted */
} quern_quantize_rows_args;

QUERN_API int32_t quern_quantize_rows_create(const quern_context* context,
                                             const quern_quantize_rows_desc* desc,
                                             quern_quantize_rows** out, quern_status* status);
QUERN_API int32_t quern_quantize_rows_run(const quern_quantize_rows* plan,
                                          const quern_quantize_rows_args* args,
                                          quern_status* status);
QUERN_API int64_t quern_quantize_rows_groups(const quern_quantize_rows* plan); /* 0 for null */
/* The level of the kernel family that the plan uses; QUERN_ISA_NONE for null. */
QUERN_API int32_t quern_quantize_rows_isa(const quern_quantize_rows* plan);
QUERN_API char* quern_quantize_rows_explain(const quern_quantize_rows* plan);
QUERN_API void quern_quantize_rows_destroy(quern_quantize_rows* plan);

/* ---- GEMM: C[M, n] = epilogue(A[M, k] * W^T) */

enum { QUERN_ACTIVATION_NONE = 0, QUERN_ACTIVATION_SILU_MUL = 1 };
enum { QUERN_INVARIANCE_STRICT = 0, QUERN_INVARIANCE_FASTEST = 1 };

typedef struct quern_bf16_gemm quern_bf16_gemm;

typedef struct quern_bf16_gemm_desc {
  size_t struct_size;
  int64_t n;
  int64_t k;
  int32_t c;          /* QUERN_F32 or QUERN_BF16 */
  int32_t bias;       /* 0 or 1 */
  int32_t activation; /* QUERN_ACTIVATION_... */
  int32_t residual;   /* 0 or 1 */
  int32_t invariance; /* QUERN_INVARIANCE_... */
  int32_t reserved;
} quern_bf16_gemm_desc;

typedef struct quern_bf16_gemm_args {
  size_t struct_size;
  quern_matrix a;
  const quern_packed_weights* weights;
  quern_mutable_matrix c;
  quern_vector bias;
  quern_matrix residual; /* may be c itself */
} quern_bf16_gemm_args;

QUERN_API int32_t quern_bf16_gemm_create(const quern_context* context,
                                         const quern_bf16_gemm_desc* desc, quern_bf16_gemm** out,
                                         quern_status* status);
QUERN_API int32_t quern_bf16_gemm_pack(const quern_bf16_gemm* plan, const quern_matrix* weights,
                                       quern_packed_weights** out, quern_status* status);
QUERN_API int32_t quern_bf16_gemm_pack_gate_up(const quern_bf16_gemm* plan,
                                               const quern_matrix* gate, const quern_matrix* up,
                                               quern_packed_weights** out, quern_status* status);
/* Bytes that _run needs for up to max_m rows; 0 is possible, also for a null plan. */
QUERN_API size_t quern_bf16_gemm_scratch_bytes(const quern_bf16_gemm* plan, int64_t max_m);
QUERN_API int32_t quern_bf16_gemm_run(const quern_bf16_gemm* plan, const quern_bf16_gemm_args* args,
                                      void* scratch, size_t scratch_bytes, quern_status* status);
QUERN_API int32_t quern_bf16_gemm_isa(const quern_bf16_gemm* plan);
/* Null only where memory is short. */
QUERN_API char* quern_bf16_gemm_explain(const quern_bf16_gemm* plan);
QUERN_API void quern_bf16_gemm_destroy(quern_bf16_gemm* plan);

enum {
  QUERN_INT8_ACTIVATIONS_DYNAMIC = 0, /* W8A8: A is f32 or bf16 and is quantized inside */
  QUERN_INT8_ACTIVATIONS_S8 = 1,      /* W8A8: A is s8 and comes with a_scale */
  QUERN_INT8_ACTIVATIONS_BF16 = 2     /* W8A16 */
};

typedef struct quern_int8_gemm quern_int8_gemm;

typedef struct quern_int8_gemm_desc {
  size_t struct_size;
  int64_t n;
  int64_t k;
  int32_t activations; /* QUERN_INT8_ACTIVATIONS_... */
  int32_t a;           /* QUERN_F32, QUERN_BF16, QUERN_S8 */
  int32_t c;           /* QUERN_F32 or QUERN_BF16 */
  int32_t bias;
  int32_t activation;
  int32_t residual;
  int32_t invariance;
  int32_t reserved;
} quern_int8_gemm_desc;

typedef struct quern_int8_weights {
  quern_matrix codes; /* QUERN_S8 [n, k] */
  quern_vector scale; /* [n] QUERN_F32, QUERN_BF16 or QUERN_F16 */
} quern_int8_weights;

typedef struct quern_int8_gemm_args {
  size_t struct_size;
  quern_matrix a;
  quern_vector a_scale; /* QUERN_F32 [M]; only with QUERN_INT8_ACTIVATIONS_S8 */
  const quern_packed_weights* weights;
  quern_mutable_matrix c;
  quern_vector bias;
  quern_matrix residual; /* may be c itself */
} quern_int8_gemm_args;

QUERN_API int32_t quern_int8_gemm_create(const quern_context* context,
                                         const quern_int8_gemm_desc* desc, quern_int8_gemm** out,
                                         quern_status* status);
QUERN_API int32_t quern_int8_gemm_pack(const quern_int8_gemm* plan,
                                       const quern_int8_weights* weights,
                                       quern_packed_weights** out, quern_status* status);
QUERN_API int32_t quern_int8_gemm_pack_gate_up(const quern_int8_gemm* plan,
                                               const quern_int8_weights* gate,
                                               const quern_int8_weights* up,
                                               quern_packed_weights** out, quern_status* status);
QUERN_API size_t quern_int8_gemm_scratch_bytes(const quern_int8_gemm* plan, int64_t max_m);
QUERN_API int32_t quern_int8_gemm_run(const quern_int8_gemm* plan, const quern_int8_gemm_args* args,
                                      void* scratch, size_t scratch_bytes, quern_status* status);
QUERN_API int32_t quern_int8_gemm_isa(const quern_int8_gemm* plan);
QUERN_API char* quern_int8_gemm_explain(const quern_int8_gemm* plan);
QUERN_API void quern_int8_gemm_destroy(quern_int8_gemm* plan);

#ifdef __cplusplus
}
#endif

#endif /* QUERN_C_API_H */
