/* fp8_gemm in C99: both formats and several grids, against sums of whole numbers. */
#include <stdlib.h>

#define C_API_PROGRAM "c_api_fp8_test"
#include "tests/ops/c_api_gemm_check.h"

enum { kM = 3, kN = 17, kK = 40, kBlockN = 8, kBlockK = 16, kRows = 3, kCols = 3 };

/* 0, 1, 2, 4, -1, -2 in both formats. */
static const uint8_t e4m3_codes[6] = {0x00, 0x38, 0x40, 0x48, 0xb8, 0xc0};
static const uint8_t e5m2_codes[6] = {0x00, 0x3c, 0x40, 0x44, 0xbc, 0xc0};
static const float values[6] = {0, 1, 2, 4, -1, -2};

static uint16_t a_data[kM * kK];
static uint8_t codes[kN * kK];
static float scale[kRows * kCols];
static float c_data[kM * kN];

static int code_at(int n, int k) { return (5 * n + k) % 6; }
static float scale_at(int row, int col) { return (row + col) % 2 == 0 ? 0.5f : 2.0f; }
static float a_at(int m, int k) { return (float)((m * 5 + k) % 11 - 5); }

static quern_fp8_weights fill(int32_t type, int one_scale) {
  quern_fp8_weights w;
  int n, k, m;
  memset(&w, 0, sizeof w);
  for (n = 0; n < kN; ++n) {
    for (k = 0; k < kK; ++k) {
      codes[n * kK + k] =
          type == QUERN_E4M3 ? e4m3_codes[code_at(n, k)] : e5m2_codes[code_at(n, k)];
    }
  }
  for (n = 0; n < kRows; ++n) {
    for (k = 0; k < kCols; ++k) scale[n * kCols + k] = scale_at(n, k);
  }
  for (m = 0; m < kM; ++m) {
    for (k = 0; k < kK; ++k) a_data[m * kK + k] = bf16(a_at(m, k));
  }
  memset(c_data, 0xff, sizeof c_data);
  w.codes = matrix(codes, type, kN, kK);
  w.scale = one_scale ? matrix(scale, QUERN_F32, 1, 1) : matrix(scale, QUERN_F32, kRows, kCols);
  return w;
}

static void expect_products(int one_scale) {
  int n, k, m;
  for (m = 0; m < kM; ++m) {
    for (n = 0; n < kN; ++n) {
      float sum = 0;
      for (k = 0; k < kK; ++k) {
        const float s = one_scale ? scale_at(0, 0) : scale_at(n / kBlockN, k / kBlockK);
        sum += a_at(m, k) * values[code_at(n, k)] * s;
      }
      EXPECT(c_data[m * kN + n] == sum);
    }
  }
}

static void test_weights(quern_context* context, int32_t type, int one_scale) {
  quern_status status;
  quern_fp8_gemm_desc desc;
  quern_fp8_gemm_args args;
  quern_fp8_gemm* plan = NULL;
  quern_packed_weights* packed = NULL;
  quern_fp8_weights weights = fill(type, one_scale);
  size_t bytes;
  void* scratch;
  char* text;
  CLEAR(desc);
  desc.n = kN;
  desc.k = kK;
  desc.weights = type == QUERN_E4M3 ? 0 : type; /* zero is the default */
  if (!one_scale) {
    desc.block_n = kBlockN;
    desc.block_k = kBlockK;
  }
  if (!OK(quern_fp8_gemm_create(context, &desc, &plan, &status))) return;
  EXPECT(quern_fp8_gemm_isa(plan) >= QUERN_ISA_AVX512);
  text = quern_fp8_gemm_explain(plan);
  EXPECT(text != NULL && strncmp(text, "fp8_gemm/n:17/k:40", 18) == 0);
  quern_string_free(text);

  weights.scale.rows += 1;
  EXPECT_INVALID(quern_fp8_gemm_pack(plan, &weights, &packed, &status), "w.scale.rows");
  weights.scale.rows -= 1;
  weights.codes.dtype = QUERN_S8;
  EXPECT_INVALID(quern_fp8_gemm_pack(plan, &weights, &packed, &status), "w.codes.dtype (s8)");
  weights.codes.dtype = 9; /* e2m1: no view has it */
  EXPECT_INVALID(quern_fp8_gemm_pack(plan, &weights, &packed, &status), "is unknown");
  weights.codes.dtype = type;
  if (!OK(quern_fp8_gemm_pack(plan, &weights, &packed, &status))) return;

  CLEAR(args);
  args.a = matrix(a_data, QUERN_BF16, kM, kK);
  args.weights = packed;
  args.c.data = c_data;
  args.c.dtype = QUERN_F32;
  args.c.rows = kM;
  args.c.cols = kN;
  bytes = quern_fp8_gemm_scratch_bytes(plan, kM);
  scratch = malloc(bytes + 1);
  if (OK(quern_fp8_gemm_run(plan, &args, scratch, bytes, &status))) expect_products(one_scale);
  args.a.cols -= 1;
  EXPECT_INVALID(quern_fp8_gemm_run(plan, &args, scratch, bytes, &status), "a.cols");
  free(scratch);
  quern_packed_weights_destroy(packed);
  quern_fp8_gemm_destroy(plan);
}

/* Of columns and of K, apart: 0 and -1 mean all of them, whatever the C++ desc begins with. */
static void test_blocks_of_all(quern_context* context) {
  static const int64_t all[2] = {0, -1};
  int columns, i;
  for (columns = 0; columns < 2; ++columns) {
    for (i = 0; i < 2; ++i) {
      quern_status status;
      quern_fp8_gemm_desc desc;
      quern_fp8_gemm* plan = NULL;
      quern_packed_weights* packed = NULL;
      quern_fp8_weights weights = fill(QUERN_E4M3, 0);
      char* text;
      CLEAR(desc);
      desc.n = kN;
      desc.k = kK;
      desc.block_n = columns ? all[i] : kBlockN;
      desc.block_k = columns ? kBlockK : all[i];
      if (!OK(quern_fp8_gemm_create(context, &desc, &plan, &status))) return;
      text = quern_fp8_gemm_explain(plan);
      EXPECT(text != NULL && (strstr(text, "/bn:") == NULL) == (columns == 1));
      EXPECT(text != NULL && (strstr(text, "/bk:") == NULL) == (columns == 0));
      quern_string_free(text);
      EXPECT_INVALID(quern_fp8_gemm_pack(plan, &weights, &packed, &status),
                     columns ? "w.scale.rows (3)" : "w.scale.cols (3)");
      weights.scale = columns ? matrix(scale, QUERN_F32, 1, kCols)
                              : matrix(scale, QUERN_F32, kRows, 1);
      OK(quern_fp8_gemm_pack(plan, &weights, &packed, &status));
      quern_packed_weights_destroy(packed);
      quern_fp8_gemm_destroy(plan);
    }
  }
}

C_API_GEMM_TEST_GATE_UP(fp8_gemm, quern_fp8_weights, kN, kK)
C_API_GEMM_TEST_NULL(fp8_gemm)

static void test_descs(quern_context* context) {
  quern_status status;
  quern_fp8_gemm_desc desc;
  quern_fp8_gemm* plan = NULL;
  CLEAR(desc);
  desc.weights = 77;
  EXPECT_INVALID(quern_fp8_gemm_create(context, &desc, &plan, &status),
                 "desc.weights (dtype 77) is unknown");
  desc.weights = QUERN_S8;
  EXPECT_INVALID(quern_fp8_gemm_create(context, &desc, &plan, &status), "desc.weights (s8)");
  desc.weights = 0;
  desc.block_k = -2;
  EXPECT_INVALID(quern_fp8_gemm_create(context, &desc, &plan, &status), "desc.block_k (-2)");
  desc.block_k = 0;
  desc.block_n = -7;
  EXPECT_INVALID(quern_fp8_gemm_create(context, &desc, &plan, &status), "desc.block_n (-7)");
  desc.block_n = 0;
  desc.reserved = 1;
  EXPECT_INVALID(quern_fp8_gemm_create(context, &desc, &plan, &status),
                 "desc.reserved (1) must be 0");
  desc.reserved = 0;
  desc.reserved2 = 1;
  EXPECT_INVALID(quern_fp8_gemm_create(context, &desc, &plan, &status),
                 "desc.reserved (1) must be 0");
}

int main(void) {
  quern_status status;
  quern_fp8_weights gate_up;
  quern_context* context = NULL;
  test_null();
  if (!OK(quern_context_create(NULL, &context, &status))) return 1;
  test_descs(context);
  if (machine_has(0)) {
    test_weights(context, QUERN_E4M3, 0);
    test_weights(context, QUERN_E4M3, 1);
    test_weights(context, QUERN_E5M2, 0);
    test_weights(context, QUERN_E5M2, 1);
    test_blocks_of_all(context);
    gate_up = fill(QUERN_E4M3, 1);
    test_gate_up(context, &gate_up);
  } else {
    printf("not run: fp8_gemm needs AVX-512 with VNNI\n");
  }
  quern_context_destroy(context);
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
