/* The C API used from C: what a program in C99 sees, and every error it can get. Expected products
 * are plain C arithmetic. Prints what failed; exit code 1 where anything did. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define C_API_PROGRAM "c_api_test.c"
#include "quern/c_api.h"
#include "tests/ops/c_api_check.h"

static quern_mutable_matrix mutable_matrix(void* data, int32_t dtype, int64_t rows, int64_t cols) {
  quern_mutable_matrix m;
  memset(&m, 0, sizeof m);
  m.data = data;
  m.dtype = dtype;
  m.rows = rows;
  m.cols = cols;
  return m;
}

static quern_vector vector(const void* data, int32_t dtype, int64_t size) {
  quern_vector v;
  memset(&v, 0, sizeof v);
  v.data = data;
  v.dtype = dtype;
  v.size = size;
  return v;
}

/* ---- Status, version, names */

static void test_status(void) {
  quern_status status;
  quern_pool* pool = NULL;
  char small[8];
  size_t length;
  memset(&status, 0xA5, sizeof status); /* an output may be uninitialised */
  EXPECT_INVALID(quern_pool_create(0, 0, &pool, &status),
                 "invalid argument: threads (0) must be in [1, 1024]");
  EXPECT(pool == NULL);
  length = quern_status_message(&status, NULL, 0);
  EXPECT(length == strlen("invalid argument: threads (0) must be in [1, 1024]"));
  EXPECT(quern_status_message(&status, small, sizeof small) == length);
  EXPECT(strcmp(small, "invalid") == 0);
  small[0] = 'x';
  EXPECT(quern_status_message(&status, small, 1) == length);
  EXPECT(small[0] == '\0');
  memset(&status, 0, sizeof status);
  EXPECT(quern_status_message(&status, small, sizeof small) == 2);
  EXPECT(strcmp(small, "ok") == 0);
  EXPECT(quern_status_message(NULL, small, sizeof small) == 2);
  EXPECT(quern_pool_create(0, 0, &pool, NULL) == QUERN_INVALID_ARGUMENT);
  EXPECT_INVALID(quern_pool_create(1, 2, &pool, &status), "pin (2) must be 0 or 1");
  EXPECT_INVALID(quern_pool_create(1, 0, NULL, &status), "out is null");

  EXPECT(strcmp(quern_status_code_name(QUERN_OK), "ok") == 0);
  EXPECT(strcmp(quern_status_code_name(QUERN_BAD_FILE), "bad file") == 0);
  EXPECT(strcmp(quern_status_code_name(99), "unknown status") == 0);
  EXPECT(strcmp(quern_isa_name(QUERN_ISA_AVX512), "avx512") == 0);
  EXPECT(strcmp(quern_isa_name(99), "?") == 0);
  EXPECT(strcmp(quern_version(), QUERN_VERSION) == 0);
  EXPECT(quern_version_number() ==
         QUERN_VERSION_MAJOR * 1000000 + QUERN_VERSION_MINOR * 1000 + QUERN_VERSION_PATCH);
}

/* ---- Null handles */

static void test_null(void) {
  quern_status status;
  quern_context* context = NULL;
  quern_packed_weights* weights = NULL;
  quern_packed_weights_info weights_info;
  quern_isa_info isa;
  quern_isa_stage stage;
  quern_context_stats stats;
  quern_bf16_gemm* bf16 = NULL;
  quern_int8_gemm* int8 = NULL;
  quern_quantize_rows* rows = NULL;
  char* text;
  const int32_t bad = QUERN_INVALID_ARGUMENT;
  memset(&weights_info, 0, sizeof weights_info);
  memset(&isa, 0, sizeof isa);
  memset(&stage, 0, sizeof stage);
  memset(&stats, 0, sizeof stats);

  quern_pool_destroy(NULL);
  quern_context_destroy(NULL);
  quern_packed_weights_destroy(NULL);
  quern_quantize_rows_destroy(NULL);
  quern_bf16_gemm_destroy(NULL);
  quern_int8_gemm_destroy(NULL);
  quern_string_free(NULL);
  EXPECT(quern_pool_size(NULL) == 0);
  EXPECT(quern_quantize_rows_groups(NULL) == 0);
  EXPECT(quern_quantize_rows_isa(NULL) == QUERN_ISA_NONE);
  EXPECT(quern_bf16_gemm_isa(NULL) == QUERN_ISA_NONE);
  EXPECT(quern_int8_gemm_isa(NULL) == QUERN_ISA_NONE);
  EXPECT(quern_bf16_gemm_scratch_bytes(NULL, 5) == 0);
  EXPECT(quern_int8_gemm_scratch_bytes(NULL, 5) == 0);

  EXPECT_ERROR(quern_pool_create_custom(NULL, NULL, &status), bad, "out is null");
  EXPECT_ERROR(quern_context_create(NULL, NULL, &status), bad, "out is null");
  EXPECT_ERROR(quern_context_isa(NULL, &isa, &status), bad, "context is null");
  EXPECT_ERROR(quern_context_isa_stage(NULL, 0, &stage, &status), bad, "context is null");
  EXPECT_ERROR(quern_context_get_stats(NULL, &stats, &status), bad, "context is null");
  EXPECT_ERROR(quern_packed_weights_get_info(NULL, &weights_info, &status), bad, "weights is null");
  EXPECT_ERROR(quern_packed_weights_save(NULL, "x", &status), bad, "weights is null");
  EXPECT_ERROR(quern_packed_weights_map(NULL, 0, &weights, &status), bad, "path is null");
  EXPECT_ERROR(quern_packed_weights_map("x", 0, NULL, &status), bad, "out is null");
  EXPECT_ERROR(quern_quantize_rows_create(NULL, NULL, &rows, &status), bad, "context is null");
  EXPECT_ERROR(quern_bf16_gemm_create(NULL, NULL, &bf16, &status), bad, "context is null");
  EXPECT_ERROR(quern_int8_gemm_create(NULL, NULL, &int8, &status), bad, "context is null");
  EXPECT_ERROR(quern_quantize_rows_run(NULL, NULL, &status), bad, "plan is null");
  EXPECT_ERROR(quern_bf16_gemm_pack(NULL, NULL, &weights, &status), bad, "plan is null");
  EXPECT_ERROR(quern_bf16_gemm_pack_gate_up(NULL, NULL, NULL, &weights, &status), bad,
               "plan is null");
  EXPECT_ERROR(quern_int8_gemm_pack(NULL, NULL, &weights, &status), bad, "plan is null");
  EXPECT_ERROR(quern_int8_gemm_pack_gate_up(NULL, NULL, NULL, &weights, &status), bad,
               "plan is null");
  EXPECT_ERROR(quern_bf16_gemm_run(NULL, NULL, NULL, 0, &status), bad, "plan is null");
  EXPECT_ERROR(quern_int8_gemm_run(NULL, NULL, NULL, 0, &status), bad, "plan is null");
  text = quern_int8_gemm_explain(NULL);
  EXPECT(text != NULL && strstr(text, "plan is null") != NULL);
  quern_string_free(text);

  if (!OK(quern_context_create(NULL, &context, &status))) return;
  EXPECT_ERROR(quern_context_isa(context, NULL, &status), bad, "out is null");
  EXPECT_ERROR(quern_context_get_stats(context, NULL, &status), bad, "out is null");
  EXPECT_ERROR(quern_bf16_gemm_create(context, NULL, &bf16, &status), bad, "desc is null");
  quern_context_destroy(context);
}

/* ---- Structs of other versions */

static void test_struct_sizes(void) {
  quern_status status;
  quern_context* context = NULL;
  quern_context_options options;
  quern_context_stats stats;
  struct {
    quern_context_options known;
    uint64_t newer;
  } longer;
  struct {
    quern_context_stats known;
    uint64_t newer[2];
  } longer_stats;

  memset(&options, 0, sizeof options);
  EXPECT_INVALID(quern_context_create(&options, &context, &status),
                 "options.struct_size (0) must be its sizeof");
  options.struct_size = sizeof options - 1;
  EXPECT_INVALID(quern_context_create(&options, &context, &status), "options.struct_size");
  options.struct_size = (size_t)-1;
  EXPECT_INVALID(quern_context_create(&options, &context, &status), "options.struct_size");
  EXPECT(context == NULL);

  memset(&longer, 0, sizeof longer);
  longer.known.struct_size = sizeof longer;
  longer.newer = 1;
  EXPECT_ERROR(quern_context_create(&longer.known, &context, &status), QUERN_UNSUPPORTED,
               "options has a field at byte");
  longer.newer = 0; /* a newer program that does not use what is new */
  if (!OK(quern_context_create(&longer.known, &context, &status))) return;

  memset(&longer_stats, 0xff, sizeof longer_stats);
  longer_stats.known.struct_size = sizeof longer_stats - sizeof longer_stats.newer[1];
  EXPECT(OK(quern_context_get_stats(context, &longer_stats.known, &status)));
  EXPECT(longer_stats.known.struct_size == sizeof stats + sizeof(uint64_t));
  EXPECT(longer_stats.known.kernels_generated == 0);
  EXPECT(longer_stats.newer[0] == 0);            /* unknown to us: zero */
  EXPECT(longer_stats.newer[1] == ~(uint64_t)0); /* beyond what was said: untouched */
  memset(&stats, 0, sizeof stats);
  EXPECT_INVALID(quern_context_get_stats(context, &stats, &status), "out.struct_size (0)");
  quern_context_destroy(context);
}

/* ---- Contexts and pools */

typedef struct {
  int runs;
  int released;
} pool_log;

static void reversed_run(void* user, int32_t phases, quern_phase_fn fn, void* ctx) {
  int32_t phase, tid;
  ++((pool_log*)user)->runs;
  for (phase = 0; phase < phases; ++phase) {
    for (tid = 2; tid >= 0; --tid) fn(ctx, phase, tid, 3);
  }
}

static void note_release(void* user) {
  ++((pool_log*)user)->released;
}

static void count_line(void* user, const char* line) {
  if (strncmp(line, "quern_verbose,v1,", 17) == 0) ++*(int*)user;
}

static void test_context(void) {
  quern_status status;
  quern_context* context = NULL;
  quern_context_options options;
  quern_isa_info isa;
  quern_isa_stage stage;
  int32_t i;

  CLEAR(options);
  options.limit_isa = 1;
  options.max_isa = 7;
  EXPECT_INVALID(quern_context_create(&options, &context, &status), "options.max_isa (7)");
  options.max_isa = QUERN_ISA_NONE;
  options.jit_off = 2;
  EXPECT_INVALID(quern_context_create(&options, &context, &status),
                 "options.jit_off (2) must be 0 or 1");
  options.jit_off = 0;
  options.verbose = 1u << 30;
  EXPECT_INVALID(quern_context_create(&options, &context, &status), "options.verbose");
  options.verbose = 0;
  options.jit_dump_dir = "/nowhere/at/all";
  EXPECT_INVALID(quern_context_create(&options, &context, &status), "options.jit_dump_dir");
  options.jit_dump_dir = NULL;
  options.jit_profile = 1u << 30;
  EXPECT_INVALID(quern_context_create(&options, &context, &status), "options.jit_profile");
  options.jit_profile = 0;
  if (!OK(quern_context_create(&options, &context, &status))) return;

  CLEAR(isa);
  if (OK(quern_context_isa(context, &isa, &status))) {
    EXPECT(isa.usable == QUERN_ISA_NONE);
    EXPECT(isa.machine >= QUERN_ISA_NONE && isa.machine <= QUERN_ISA_AMX);
    EXPECT(isa.cpu != NULL);
    EXPECT(isa.stages > 0);
  }
  CLEAR(stage);
  for (i = 0; i < isa.stages; ++i) {
    if (!OK(quern_context_isa_stage(context, i, &stage, &status))) break;
    EXPECT(stage.name[0] != '\0' && (stage.passed == 0 || stage.passed == 1));
  }
  EXPECT_INVALID(quern_context_isa_stage(context, isa.stages, &stage, &status), "index (");
  EXPECT_INVALID(quern_context_isa_stage(context, -1, &stage, &status), "index (-1)");
  quern_context_destroy(context);
}

static void test_refusals(void) {
  quern_status status;
  quern_context* context = NULL;
  quern_context_options options;
  quern_bf16_gemm_desc desc;
  quern_bf16_gemm* plan = (quern_bf16_gemm*)&status; /* anything but null */
  int lines = 0;

  CLEAR(options);
  options.limit_isa = 1; /* max_isa none */
  options.verbose = QUERN_VERBOSE_ALL;
  options.sink = count_line;
  options.sink_user = &lines;
  if (!OK(quern_context_create(&options, &context, &status))) return;
  CLEAR(desc);
  desc.n = 4;
  desc.k = 4;
  EXPECT_ERROR(quern_bf16_gemm_create(context, &desc, &plan, &status), QUERN_UNSUPPORTED,
               "no kernel family can run");
  EXPECT(plan == NULL);
  EXPECT(lines > 2);
  desc.c = 256; /* must not become f32 on the way to 8 bits */
  EXPECT_INVALID(quern_bf16_gemm_create(context, &desc, &plan, &status),
                 "desc.c (dtype 256) is unknown");
  desc.c = QUERN_F32;
  desc.activation = 257;
  EXPECT_INVALID(quern_bf16_gemm_create(context, &desc, &plan, &status),
                 "desc.activation (257) is unknown");
  desc.activation = 2;
  EXPECT_INVALID(quern_bf16_gemm_create(context, &desc, &plan, &status),
                 "activation (2) must be kNone (0) or kSiluMul (1)");
  desc.activation = 0;
  desc.bias = -1;
  EXPECT_INVALID(quern_bf16_gemm_create(context, &desc, &plan, &status),
                 "desc.bias (-1) must be 0 or 1");
  desc.bias = 0;
  desc.n = -1;
  EXPECT_INVALID(quern_bf16_gemm_create(context, &desc, &plan, &status),
                 "desc.n (-1) must not be negative");
  desc.reserved = 1;
  EXPECT_INVALID(quern_bf16_gemm_create(context, &desc, &plan, &status),
                 "desc.reserved (1) must be 0");
  quern_context_destroy(context);
}

/* ---- Products. All pools and contexts are destroyed before the plans are used. */

enum { kM = 5, kN = 19, kK = 33 };

static quern_context* three_thread_context(pool_log* log) {
  quern_status status;
  quern_pool_callbacks callbacks;
  quern_context_options options;
  quern_pool* pool = NULL;
  quern_context* context = NULL;
  CLEAR(callbacks);
  EXPECT_INVALID(quern_pool_create_custom(&callbacks, &pool, &status), "callbacks.run is null");
  callbacks.run = reversed_run;
  EXPECT_INVALID(quern_pool_create_custom(&callbacks, &pool, &status),
                 "callbacks.threads (0) must be at least 1");
  callbacks.threads = 3;
  callbacks.user = log;
  callbacks.release = note_release;
  if (!OK(quern_pool_create_custom(&callbacks, &pool, &status))) return NULL;
  EXPECT(quern_pool_size(pool) == 3);
  CLEAR(options);
  options.pool = pool;
  OK(quern_context_create(&options, &context, &status));
  quern_pool_destroy(pool);
  EXPECT(log->released == 0);
  return context;
}

static void fill_s8(int8_t* to, int count, int seed) {
  int i;
  for (i = 0; i < count; ++i) to[i] = (int8_t)((i * 37 + seed * 11) % 256 - 128);
}

static void check_int8_run(const quern_int8_gemm* plan, const quern_packed_weights* weights,
                           const int8_t* a, const int8_t* w, const float* scale) {
  quern_status status;
  quern_int8_gemm_args args;
  float a_scale[kM], bias[kN], c[kM * kN];
  const size_t bytes = quern_int8_gemm_scratch_bytes(plan, kM);
  void* scratch = malloc(bytes + 1);
  int i, j, k;
  for (i = 0; i < kM; ++i) a_scale[i] = (float)(i + 1) / 8;
  for (j = 0; j < kN; ++j) bias[j] = (float)j - 3;
  CLEAR(args);
  args.a = matrix(a, QUERN_S8, kM, kK);
  args.a_scale = vector(a_scale, QUERN_F32, kM);
  args.weights = weights;
  args.c = mutable_matrix(c, QUERN_F32, kM, kN);
  args.bias = vector(bias, QUERN_F32, kN);
  if (OK(quern_int8_gemm_run(plan, &args, scratch, bytes, &status))) {
    for (i = 0; i < kM; ++i) {
      for (j = 0; j < kN; ++j) {
        int32_t sum = 0;
        volatile float s = a_scale[i] * scale[j], t; /* volatile: each product is rounded */
        for (k = 0; k < kK; ++k) sum += a[i * kK + k] * w[j * kK + k];
        t = (float)sum * s;
        t = t + bias[j];
        EXPECT(c[i * kN + j] == t);
      }
    }
  }
  args.bias = vector(NULL, QUERN_F32, kN);
  EXPECT_INVALID(quern_int8_gemm_run(plan, &args, scratch, bytes, &status), "bias.data is null");
  args.bias = vector(bias, 77, kN);
  EXPECT_INVALID(quern_int8_gemm_run(plan, &args, scratch, bytes, &status),
                 "bias.dtype (77) is unknown");
  args.bias = vector(bias, QUERN_F32, kN);
  args.a.reserved = 1;
  EXPECT_INVALID(quern_int8_gemm_run(plan, &args, scratch, bytes, &status),
                 "a.reserved (1) must be 0");
  args.a.reserved = 0;
  args.weights = NULL;
  EXPECT_INVALID(quern_int8_gemm_run(plan, &args, scratch, bytes, &status), "weights is null");
  args.weights = weights;
  if (bytes > 0) {
    EXPECT_INVALID(quern_int8_gemm_run(plan, &args, NULL, 0, &status), "scratch has 0 bytes");
  }
  args.struct_size = 8;
  EXPECT_INVALID(quern_int8_gemm_run(plan, &args, scratch, bytes, &status), "args.struct_size (8)");
  free(scratch);
}

/* Saves, maps and looks at weights; returns the mapped ones. */
static quern_packed_weights* through_a_file(const quern_packed_weights* weights, const char* path,
                                            const char* layout) {
  quern_status status;
  quern_packed_weights* mapped = NULL;
  quern_packed_weights_info info, mapped_info;
  FILE* file;
  CLEAR(info);
  mapped_info = info;
  OK(quern_packed_weights_get_info(weights, &info, &status));
  EXPECT(info.n == kN && info.k == kK && strcmp(info.layout_name, layout) == 0);
  OK(quern_packed_weights_save(weights, path, &status));
  EXPECT_INVALID(quern_packed_weights_map(path, 2, &mapped, &status), "verify (2) must be 0 or 1");
  if (!OK(quern_packed_weights_map(path, 1, &mapped, &status))) return NULL;
  OK(quern_packed_weights_get_info(mapped, &mapped_info, &status));
  EXPECT(mapped_info.bytes == info.bytes && mapped_info.layout == info.layout);
  EXPECT(memcmp(mapped_info.data, info.data, info.bytes) == 0);
  EXPECT_ERROR(quern_packed_weights_save(weights, "/nowhere/at/all/w", &status), QUERN_IO_ERROR,
               "/nowhere/at/all/w: cannot create");
  remove(path);
  file = fopen(path, "wb");
  fputs("not weights", file);
  fclose(file);
  {
    quern_packed_weights* none = NULL;
    EXPECT_ERROR(quern_packed_weights_map(path, 0, &none, &status), QUERN_BAD_FILE,
                 "ends after 11 bytes, expected 4096");
    EXPECT(none == NULL);
  }
  remove(path);
  return mapped;
}

static void test_int8(const char* path) {
  quern_status status;
  pool_log log = {0, 0};
  quern_context* context = three_thread_context(&log);
  quern_int8_gemm_desc desc;
  quern_int8_weights weights;
  quern_int8_gemm* plan = NULL;
  quern_packed_weights *packed = NULL, *mapped = NULL;
  int8_t a[kM * kK], w[kN * kK];
  float scale[kN];
  char* text;
  int i;
  if (context == NULL) return;
  fill_s8(a, kM * kK, 1);
  fill_s8(w, kN * kK, 2);
  for (i = 0; i < kN; ++i) scale[i] = (float)(i + 3) / 64;
  CLEAR(desc);
  desc.n = kN;
  desc.k = kK;
  desc.activations = QUERN_INT8_ACTIVATIONS_S8;
  desc.a = QUERN_F32;
  EXPECT_INVALID(quern_int8_gemm_create(context, &desc, &plan, &status), "desc.a (f32) must be s8");
  desc.a = QUERN_S8;
  desc.bias = 1;
  desc.activations = 9;
  EXPECT_INVALID(quern_int8_gemm_create(context, &desc, &plan, &status),
                 "desc.activations (9) must be kDynamicS8 (0)");
  desc.activations = QUERN_INT8_ACTIVATIONS_S8;
  if (!OK(quern_int8_gemm_create(context, &desc, &plan, &status))) return;
  quern_context_destroy(context);

  memset(&weights, 0, sizeof weights);
  weights.codes = matrix(w, QUERN_S8, kN, kK);
  weights.scale = vector(scale, QUERN_S8, kN);
  EXPECT_INVALID(quern_int8_gemm_pack(plan, &weights, &packed, &status), "w.scale.dtype");
  EXPECT_INVALID(quern_int8_gemm_pack(plan, NULL, &packed, &status), "weights is null");
  weights.scale.dtype = QUERN_F32;
  EXPECT_INVALID(quern_int8_gemm_pack_gate_up(plan, &weights, &weights, &packed, &status),
                 "silu_mul");
  if (OK(quern_int8_gemm_pack(plan, &weights, &packed, &status))) {
    mapped = through_a_file(packed, path, "u8.vnni4.n16.v2");
    check_int8_run(plan, packed, a, w, scale);
    check_int8_run(plan, mapped, a, w, scale);
  }
  EXPECT(log.runs > 0);
  text = quern_int8_gemm_explain(plan);
  EXPECT(text != NULL && strstr(text, "int8_gemm") != NULL && strstr(text, "refused") != NULL);
  quern_string_free(text);
  quern_packed_weights_destroy(mapped);
  quern_packed_weights_destroy(packed);
  EXPECT(log.released == 0);
  quern_int8_gemm_destroy(plan);
  EXPECT(log.released == 1);
}

static void test_bf16(const char* path) {
  quern_status status;
  quern_pool* pool = NULL;
  quern_context* context = NULL;
  quern_context_options options;
  quern_bf16_gemm_desc desc;
  quern_bf16_gemm_args args;
  quern_bf16_gemm* plan = NULL;
  quern_packed_weights *packed = NULL, *mapped = NULL;
  uint16_t a[kM * (kK + 2)], w[kN * kK];
  float c[kM * kN], residual[kM * kN];
  quern_matrix weights;
  size_t bytes;
  void* scratch;
  int i, j, k;
  memset(a, 0xff, sizeof a); /* between the rows: NaN */
  for (i = 0; i < kM; ++i) {
    for (k = 0; k < kK; ++k) a[i * (kK + 2) + k] = bf16((float)((i * 5 + k * 3) % 9 - 4));
  }
  for (i = 0; i < kN * kK; ++i) w[i] = bf16((float)(i % 7 - 3));
  for (i = 0; i < kM * kN; ++i) residual[i] = (float)i;

  if (!OK(quern_pool_create(2, 0, &pool, &status))) return;
  CLEAR(options);
  options.pool = pool;
  if (!OK(quern_context_create(&options, &context, &status))) return;
  CLEAR(desc);
  desc.n = kN;
  desc.k = kK;
  desc.residual = 1;
  if (!OK(quern_bf16_gemm_create(context, &desc, &plan, &status))) return;
  quern_pool_destroy(pool);
  quern_context_destroy(context);

  weights = matrix(w, QUERN_BF16, kN, kK + 1);
  EXPECT_INVALID(quern_bf16_gemm_pack(plan, &weights, &packed, &status), "w.cols (34) must be 33");
  weights.cols = kK;
  if (!OK(quern_bf16_gemm_pack(plan, &weights, &packed, &status))) return;
  mapped = through_a_file(packed, path, "bf16.vnni2.n16.v2");
  quern_packed_weights_destroy(packed); /* the mapped ones stand alone */

  bytes = quern_bf16_gemm_scratch_bytes(plan, kM);
  scratch = malloc(bytes + 1);
  CLEAR(args);
  args.a = matrix(a, QUERN_BF16, kM, kK);
  args.a.row_stride = kK + 2;
  args.weights = mapped;
  args.c = mutable_matrix(c, QUERN_F32, kM, kN);
  args.residual = matrix(residual, QUERN_F32, kM, kN);
  if (OK(quern_bf16_gemm_run(plan, &args, scratch, bytes, &status))) {
    for (i = 0; i < kM; ++i) {
      for (j = 0; j < kN; ++j) {
        int sum = i * kN + j; /* the residual; every partial sum is a small integer, so exact */
        for (k = 0; k < kK; ++k) sum += ((i * 5 + k * 3) % 9 - 4) * ((j * kK + k) % 7 - 3);
        EXPECT(c[i * kN + j] == (float)sum);
      }
    }
  }
  free(scratch);
  quern_packed_weights_destroy(mapped);
  quern_bf16_gemm_destroy(plan);
}

static void test_gate_up(void) {
  quern_status status;
  quern_context* context = NULL;
  quern_bf16_gemm_desc desc;
  quern_bf16_gemm_args args;
  quern_bf16_gemm* plan = NULL;
  quern_packed_weights* packed = NULL;
  const uint16_t gate[2] = {0x0000, 0x4120}; /* 0, 10 */
  const uint16_t up[2] = {0x40a0, 0x4040};   /* 5, 3 */
  const uint16_t one[1] = {0x3f80};
  float c[2] = {-1, -1};
  quern_matrix g, u;
  if (!OK(quern_context_create(NULL, &context, &status))) return;
  CLEAR(desc);
  desc.n = 2;
  desc.k = 1;
  desc.activation = QUERN_ACTIVATION_SILU_MUL;
  if (!OK(quern_bf16_gemm_create(context, &desc, &plan, &status))) return;
  g = matrix(gate, QUERN_BF16, 2, 1);
  u = matrix(up, QUERN_BF16, 2, 1);
  EXPECT_INVALID(quern_bf16_gemm_pack_gate_up(plan, &g, NULL, &packed, &status), "up is null");
  if (OK(quern_bf16_gemm_pack_gate_up(plan, &g, &u, &packed, &status))) {
    const size_t bytes = quern_bf16_gemm_scratch_bytes(plan, 1);
    void* scratch = malloc(bytes + 1);
    CLEAR(args);
    args.a = matrix(one, QUERN_BF16, 1, 1);
    args.weights = packed;
    args.c = mutable_matrix(c, QUERN_F32, 1, 2);
    EXPECT(OK(quern_bf16_gemm_run(plan, &args, scratch, bytes, &status)));
    EXPECT(c[0] == 0);
    /* silu(10) * 3 = 30 / (1 + exp(-10)) = 29.998638; a few ulp of 2^-19 */
    EXPECT(c[1] > 29.99862f && c[1] < 29.99866f);
    free(scratch);
  }
  quern_packed_weights_destroy(packed);
  quern_bf16_gemm_destroy(plan);
  quern_context_destroy(context);
}

static void test_quantize(void) {
  quern_status status;
  quern_context* context = NULL;
  quern_quantize_rows_desc desc;
  quern_quantize_rows_args args;
  quern_quantize_rows* plan = NULL;
  const float a[6] = {127, -127, 1, 0, 2, 4};
  const int8_t expected[6] = {127, -127, 1, 0, 64, 127}; /* 2 * 31.75 = 63.5, to even */
  int8_t q[6];
  float scale[2];
  int32_t sums[4];
  char* text;
  if (!OK(quern_context_create(NULL, &context, &status))) return;
  CLEAR(desc);
  desc.k = 3;
  desc.group = 2;
  if (!OK(quern_quantize_rows_create(context, &desc, &plan, &status))) return;
  EXPECT(quern_quantize_rows_groups(plan) == 2);
  EXPECT(quern_quantize_rows_isa(plan) >= QUERN_ISA_AVX512);
  CLEAR(args);
  args.a = matrix(a, QUERN_F32, 2, 3);
  args.q = mutable_matrix(q, QUERN_S8, 2, 3);
  args.scale.data = scale;
  args.scale.size = 2;
  args.sums = mutable_matrix(sums, QUERN_S32, 2, 2);
  if (OK(quern_quantize_rows_run(plan, &args, &status))) {
    EXPECT(memcmp(q, expected, sizeof q) == 0);
    EXPECT(scale[0] == 1 && scale[1] == 4.0f / 127);
    EXPECT(sums[0] == 0 && sums[1] == 1 && sums[2] == 64 && sums[3] == 127);
  }
  args.scale.size = 3;
  EXPECT_INVALID(quern_quantize_rows_run(plan, &args, &status), "scale.size (3) must be 2");
  args.scale.size = 2;
  args.scale.reserved = -5;
  EXPECT_INVALID(quern_quantize_rows_run(plan, &args, &status), "scale.reserved (-5) must be 0");
  EXPECT_INVALID(quern_quantize_rows_run(plan, NULL, &status), "args is null");
  text = quern_quantize_rows_explain(plan);
  EXPECT(text != NULL && strstr(text, "quantize_rows") != NULL);
  quern_string_free(text);
  quern_quantize_rows_destroy(plan);
  quern_context_destroy(context);
}

int main(int argc, char** argv) {
  const char* path = argc > 1 ? argv[1] : "c_api_test.qpw";
  test_status();
  test_null();
  test_struct_sizes();
  test_context();
  test_refusals();
  if (machine_has(0)) {
    test_int8(path);
    test_quantize();
  } else {
    printf("not run: int8_gemm and quantize_rows need AVX-512 with VNNI\n");
  }
  if (machine_has(1)) {
    test_bf16(path);
    test_gate_up();
  } else {
    printf("not run: bf16_gemm needs AVX512-BF16\n");
  }
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
