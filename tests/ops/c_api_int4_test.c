/* int4_gemm in C99: each storage, zeros and activation order, against sums of whole numbers. */
#include <stdlib.h>

#define C_API_PROGRAM "c_api_int4_test"
#include "tests/ops/c_api_check.h"

enum { kM = 3, kN = 17, kK = 40, kG = 16, kGroups = 3, kWords = 3, kKWords = 5 };

static uint16_t a_data[kM * kK];
static int32_t codes[kK * kN]; /* the largest storage there is */
static int32_t zeros[kGroups * kN];
static float scale[kGroups * kN];
static int32_t g_idx[kK];
static float c_data[kM * kN];

static int code_at(int n, int k) { return (5 * n + 3 * k) % 16; }
static int zero_at(int n, int g) { return (2 * n + g) % 16; }
static float scale_at(int n, int g) { return (n + g) % 2 == 0 ? 0.5f : 2.0f; }
static int group_of(int k, int act_order) { return act_order ? k % kGroups : k / kG; }
/* Whole numbers up to 127, which is in every row: what quantizing them gives is the same. */
static float a_at(int m, int k) { return k == 7 ? 127.0f : (float)((m * 5 + k) % 11 - 5); }

static void put(int32_t* words, int word, int nibble, int value) {
  words[word] = (int32_t)((uint32_t)words[word] | (uint32_t)value << 4 * nibble);
}

static quern_int4_weights fill(int32_t storage, int has_zeros, int act_order) {
  static const int awq_nibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  quern_int4_weights w;
  int n, k, g, m;
  memset(&w, 0, sizeof w);
  memset(codes, 0, sizeof codes);
  memset(zeros, 0, sizeof zeros);
  for (n = 0; n < kN; ++n) {
    const int lane = storage == QUERN_INT4_STORAGE_AWQ ? awq_nibble[n % 8] : n % 8;
    for (k = 0; k < kK; ++k) {
      if (storage == QUERN_INT4_STORAGE_GPTQ) put(codes, k / 8 * kN + n, k % 8, code_at(n, k));
      if (storage == QUERN_INT4_STORAGE_AWQ) put(codes, k * kWords + n / 8, lane, code_at(n, k));
      if (storage == QUERN_INT4_STORAGE_ROW_MAJOR) {
        put(codes, n * kKWords + k / 8, k % 8, code_at(n, k));
      }
    }
    for (g = 0; g < kGroups; ++g) {
      if (storage == QUERN_INT4_STORAGE_ROW_MAJOR) {
        put(zeros, n / 8 * kGroups + g, lane, zero_at(n, g));
        scale[n * kGroups + g] = scale_at(n, g);
      } else {
        put(zeros, g * kWords + n / 8, lane, zero_at(n, g));
        scale[g * kN + n] = scale_at(n, g);
      }
    }
  }
  for (k = 0; k < kK; ++k) g_idx[k] = group_of(k, act_order);
  for (m = 0; m < kM; ++m) {
    for (k = 0; k < kK; ++k) a_data[m * kK + k] = bf16(a_at(m, k));
  }
  memset(c_data, 0xff, sizeof c_data);
  w.storage = storage;
  if (storage == QUERN_INT4_STORAGE_GPTQ) w.codes = matrix(codes, QUERN_S32, kKWords, kN);
  if (storage == QUERN_INT4_STORAGE_AWQ) w.codes = matrix(codes, QUERN_S32, kK, kWords);
  if (storage == QUERN_INT4_STORAGE_ROW_MAJOR) w.codes = matrix(codes, QUERN_S32, kN, kKWords);
  if (storage == QUERN_INT4_STORAGE_ROW_MAJOR) {
    w.scale = matrix(scale, QUERN_F32, kN, kGroups);
    if (has_zeros) w.zero = matrix(zeros, QUERN_S32, kWords, kGroups);
  } else {
    w.scale = matrix(scale, QUERN_F32, kGroups, kN);
    if (has_zeros) w.zero = matrix(zeros, QUERN_S32, kGroups, kWords);
  }
  if (act_order) {
    w.g_idx.data = g_idx;
    w.g_idx.dtype = QUERN_S32;
    w.g_idx.size = kK;
  }
  return w;
}

static void expect_products(int has_zeros, int act_order) {
  int n, k, m;
  for (m = 0; m < kM; ++m) {
    for (n = 0; n < kN; ++n) {
      float sum = 0;
      for (k = 0; k < kK; ++k) {
        const int g = group_of(k, act_order);
        const int zero = has_zeros ? zero_at(n, g) : 8;
        sum += a_at(m, k) * (float)(code_at(n, k) - zero) * scale_at(n, g);
      }
      EXPECT(c_data[m * kN + n] == sum);
    }
  }
}

static void count(void* user, int64_t done, int64_t total) {
  int64_t* seen = (int64_t*)user;
  seen[0] = done;
  seen[1] = total;
}

static void test_weights(quern_context* context, int32_t storage, int has_zeros, int act_order,
                         int32_t activations) {
  quern_status status;
  quern_int4_gemm_desc desc;
  quern_int4_gemm_args args;
  quern_pack_progress progress;
  quern_int4_gemm* plan = NULL;
  quern_packed_weights* packed = NULL;
  quern_int4_weights weights = fill(storage, has_zeros, act_order);
  int64_t seen[2] = {-1, -1};
  size_t bytes;
  void* scratch;
  char* text;
  CLEAR(desc);
  desc.n = kN;
  desc.k = kK;
  desc.group = kG;
  desc.zeros = has_zeros ? QUERN_INT4_ZEROS_INTEGER : QUERN_INT4_ZEROS_SYMMETRIC;
  desc.act_order = act_order;
  desc.activations = activations;
  if (!OK(quern_int4_gemm_create(context, &desc, &plan, &status))) return;
  EXPECT(quern_int4_gemm_isa(plan) >= QUERN_ISA_AVX512);
  text = quern_int4_gemm_explain(plan);
  EXPECT(text != NULL && strncmp(text, "int4_gemm/n:17/k:40/g:16", 24) == 0);
  quern_string_free(text);

  weights.scale.rows += 1;
  EXPECT_INVALID(quern_int4_gemm_pack(plan, &weights, NULL, &packed, &status), "w.scale.rows");
  weights.scale.rows -= 1;
  progress.report = count;
  progress.user = seen;
  if (!OK(quern_int4_gemm_pack(plan, &weights, &progress, &packed, &status))) return;
  EXPECT(seen[0] == 2 && seen[1] == 2); /* panels of 16 columns */

  CLEAR(args);
  args.a = matrix(a_data, QUERN_BF16, kM, kK);
  args.weights = packed;
  args.c.data = c_data;
  args.c.dtype = QUERN_F32;
  args.c.rows = kM;
  args.c.cols = kN;
  bytes = quern_int4_gemm_scratch_bytes(plan, kM);
  scratch = malloc(bytes + 1);
  if (OK(quern_int4_gemm_run(plan, &args, scratch, bytes, &status))) {
    expect_products(has_zeros, act_order);
  }
  args.a.cols -= 1;
  EXPECT_INVALID(quern_int4_gemm_run(plan, &args, scratch, bytes, &status), "a.cols");
  free(scratch);
  quern_packed_weights_destroy(packed);
  quern_int4_gemm_destroy(plan);
}

static void test_one_group(quern_context* context) {
  static const int64_t all[2] = {0, -1};
  int i;
  for (i = 0; i < 2; ++i) {
    quern_status status;
    quern_int4_gemm_desc desc;
    quern_int4_gemm* plan = NULL;
    quern_packed_weights* packed = NULL;
    quern_int4_weights weights = fill(QUERN_INT4_STORAGE_GPTQ, 0, 0);
    CLEAR(desc);
    desc.n = kN;
    desc.k = kK;
    desc.scale = weights.scale.dtype;
    desc.group = all[i];
    if (!OK(quern_int4_gemm_create(context, &desc, &plan, &status))) return;
    EXPECT_INVALID(quern_int4_gemm_pack(plan, &weights, NULL, &packed, &status), "w.scale.rows");
    weights.scale.rows = 1;
    OK(quern_int4_gemm_pack(plan, &weights, NULL, &packed, &status));
    quern_packed_weights_destroy(packed);
    quern_int4_gemm_destroy(plan);
  }
}

static void test_gate_up(quern_context* context) {
  quern_status status;
  quern_int4_gemm_desc desc;
  quern_int4_gemm* plan = NULL;
  quern_packed_weights* packed = NULL;
  const quern_int4_weights weights = fill(QUERN_INT4_STORAGE_GPTQ, 0, 0);
  CLEAR(desc);
  desc.n = kN;
  desc.k = kK;
  desc.group = kG;
  desc.activation = QUERN_ACTIVATION_SILU_MUL;
  if (!OK(quern_int4_gemm_create(context, &desc, &plan, &status))) return;
  EXPECT_INVALID(quern_int4_gemm_pack(plan, &weights, NULL, &packed, &status), "pack_gate_up");
  EXPECT_INVALID(quern_int4_gemm_pack_gate_up(plan, &weights, NULL, NULL, &packed, &status),
                 "up is null");
  OK(quern_int4_gemm_pack_gate_up(plan, &weights, &weights, NULL, &packed, &status));
  quern_packed_weights_destroy(packed);
  quern_int4_gemm_destroy(plan);
}

static void test_null(void) {
  quern_status status;
  quern_int4_gemm* plan = (quern_int4_gemm*)&status; /* anything but null */
  quern_packed_weights* packed = (quern_packed_weights*)&status;
  char* text;
  quern_int4_gemm_destroy(NULL);
  EXPECT(quern_int4_gemm_isa(NULL) == QUERN_ISA_NONE);
  EXPECT(quern_int4_gemm_scratch_bytes(NULL, 5) == 0);
  EXPECT_INVALID(quern_int4_gemm_create(NULL, NULL, &plan, &status), "context is null");
  EXPECT(plan == NULL);
  EXPECT_INVALID(quern_int4_gemm_create(NULL, NULL, NULL, &status), "out is null");
  EXPECT_INVALID(quern_int4_gemm_pack(NULL, NULL, NULL, &packed, &status), "plan is null");
  EXPECT(packed == NULL);
  EXPECT_INVALID(quern_int4_gemm_pack_gate_up(NULL, NULL, NULL, NULL, &packed, &status),
                 "plan is null");
  EXPECT_INVALID(quern_int4_gemm_run(NULL, NULL, NULL, 0, &status), "plan is null");
  text = quern_int4_gemm_explain(NULL);
  EXPECT(text != NULL && strstr(text, "plan is null") != NULL);
  quern_string_free(text);
}

static void test_descs(quern_context* context) {
  quern_status status;
  quern_int4_gemm_desc desc;
  quern_int4_gemm* plan = NULL;
  CLEAR(desc);
  desc.zeros = 3;
  EXPECT_INVALID(quern_int4_gemm_create(context, &desc, &plan, &status), "desc.zeros (3)");
  desc.zeros = 300;
  EXPECT_INVALID(quern_int4_gemm_create(context, &desc, &plan, &status),
                 "desc.zeros (300) is unknown");
  desc.zeros = 0;
  desc.act_order = 2;
  EXPECT_INVALID(quern_int4_gemm_create(context, &desc, &plan, &status),
                 "desc.act_order (2) must be 0 or 1");
  desc.act_order = 0;
  desc.scale = QUERN_S8;
  EXPECT_INVALID(quern_int4_gemm_create(context, &desc, &plan, &status), "desc.scale (s8)");
  desc.scale = 0;
  desc.group = -2;
  EXPECT_INVALID(quern_int4_gemm_create(context, &desc, &plan, &status), "desc.group (-2)");
  desc.group = 0;
  desc.reserved = 1;
  EXPECT_INVALID(quern_int4_gemm_create(context, &desc, &plan, &status),
                 "desc.reserved (1) must be 0");
}

int main(void) {
  quern_status status;
  quern_context* context = NULL;
  int32_t storage;
  int has_zeros, act_order;
  test_null();
  if (!OK(quern_context_create(NULL, &context, &status))) return 1;
  test_descs(context);
  if (machine_has(0)) {
    for (storage = 0; storage < 3; ++storage) {
      for (has_zeros = 0; has_zeros < 2; ++has_zeros) {
        for (act_order = 0; act_order < 2; ++act_order) {
          test_weights(context, storage, has_zeros, act_order, QUERN_INT4_ACTIVATIONS_BF16);
          test_weights(context, storage, has_zeros, act_order, QUERN_INT4_ACTIVATIONS_DYNAMIC_S8);
        }
      }
    }
    test_one_group(context);
    test_gate_up(context);
  } else {
    printf("not run: int4_gemm needs AVX-512 with VNNI\n");
  }
  quern_context_destroy(context);
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
