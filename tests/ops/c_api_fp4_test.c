/* fp4_gemm in C99: both formats, against sums of whole numbers. */
#include <stdlib.h>

#define C_API_PROGRAM "c_api_fp4_test"
#include "tests/ops/c_api_gemm_check.h"

enum { kM = 3, kN = 17, kK = 41, kBytes = 21 };

/* e2m1, OCP Microscaling Formats 1.0. */
static const float values[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};

static uint16_t a_data[kM * kK];
static uint8_t codes[kN * kBytes];
static uint8_t scale[kN * 3];
static float global[1];
static float c_data[kM * kN];

static int code_at(int n, int k) { return (5 * n + k) % 16; }
/* 0.5, 1, 2 */
static int power_at(int n, int block) { return (n + block) % 3; }
static float a_at(int m, int k) { return (float)((m * 5 + k) % 11 - 5); }

static quern_fp4_weights fill(int32_t format, int divisor) {
  static const uint8_t e4m3[3] = {0x30, 0x38, 0x40};
  const int blocks = format == QUERN_NVFP4 ? 3 : 2;
  quern_fp4_weights w;
  int n, k, m;
  memset(&w, 0, sizeof w);
  memset(codes, 0, sizeof codes);
  for (n = 0; n < kN; ++n) {
    for (k = 0; k < kK; ++k) codes[n * kBytes + k / 2] |= (uint8_t)(code_at(n, k) << (k % 2 * 4));
    for (k = 0; k < blocks; ++k) {
      const int power = power_at(n, k);
      scale[n * blocks + k] = format == QUERN_NVFP4 ? e4m3[power] : (uint8_t)(126 + power);
    }
  }
  for (m = 0; m < kM; ++m) {
    for (k = 0; k < kK; ++k) a_data[m * kK + k] = bf16(a_at(m, k));
  }
  memset(c_data, 0xff, sizeof c_data);
  w.codes = matrix(codes, QUERN_U8, kN, kBytes);
  w.scale = matrix(scale, format == QUERN_NVFP4 ? QUERN_E4M3 : QUERN_E8M0, kN, blocks);
  if (format == QUERN_NVFP4) {
    global[0] = divisor ? 4.0f : 0.25f;
    w.global.data = global;
    w.global.dtype = QUERN_F32;
    w.global.size = 1;
    w.global_is = divisor ? QUERN_FP4_DIVISOR : QUERN_FP4_MULTIPLIER;
  }
  return w;
}

static void expect_products(int32_t format) {
  int n, k, m;
  for (m = 0; m < kM; ++m) {
    for (n = 0; n < kN; ++n) {
      float sum = 0;
      for (k = 0; k < kK; ++k) {
        const int power = power_at(n, k / (format == QUERN_NVFP4 ? 16 : 32));
        sum += a_at(m, k) * values[code_at(n, k)] * 0.5f * (float)(1 << power);
      }
      EXPECT(c_data[m * kN + n] == (format == QUERN_NVFP4 ? sum * 0.25f : sum));
    }
  }
}

static void test_weights(quern_context* context, int32_t format, int divisor) {
  quern_status status;
  quern_fp4_gemm_desc desc;
  quern_fp4_gemm_args args;
  quern_fp4_gemm* plan = NULL;
  quern_packed_weights* packed = NULL;
  quern_fp4_weights weights = fill(format, divisor);
  size_t bytes;
  void* scratch;
  char* text;
  CLEAR(desc);
  desc.n = kN;
  desc.k = kK;
  desc.format = format;
  if (!OK(quern_fp4_gemm_create(context, &desc, &plan, &status))) return;
  EXPECT(quern_fp4_gemm_isa(plan) >= QUERN_ISA_AVX512);
  text = quern_fp4_gemm_explain(plan);
  EXPECT(text != NULL && strncmp(text, "fp4_gemm/n:17/k:41", 18) == 0);
  quern_string_free(text);

  weights.scale.rows += 1;
  EXPECT_INVALID(quern_fp4_gemm_pack(plan, &weights, &packed, &status), "w.scale.rows");
  weights.scale.rows -= 1;
  weights.codes.dtype = QUERN_S8;
  EXPECT_INVALID(quern_fp4_gemm_pack(plan, &weights, &packed, &status), "w.codes.dtype (s8)");
  weights.codes.dtype = 9; /* e2m1: no view has it */
  EXPECT_INVALID(quern_fp4_gemm_pack(plan, &weights, &packed, &status), "is unknown");
  weights.codes.dtype = QUERN_U8;
  weights.global_is = 2;
  EXPECT_INVALID(quern_fp4_gemm_pack(plan, &weights, &packed, &status), "global_is (2)");
  weights.global_is = divisor ? QUERN_FP4_DIVISOR : QUERN_FP4_MULTIPLIER;
  weights.reserved = 1;
  EXPECT_INVALID(quern_fp4_gemm_pack(plan, &weights, &packed, &status), "reserved (1) must be 0");
  weights.reserved = 0;
  if (!OK(quern_fp4_gemm_pack(plan, &weights, &packed, &status))) return;

  CLEAR(args);
  args.a = matrix(a_data, QUERN_BF16, kM, kK);
  args.weights = packed;
  args.c.data = c_data;
  args.c.dtype = QUERN_F32;
  args.c.rows = kM;
  args.c.cols = kN;
  bytes = quern_fp4_gemm_scratch_bytes(plan, kM);
  scratch = malloc(bytes + 1);
  if (OK(quern_fp4_gemm_run(plan, &args, scratch, bytes, &status))) expect_products(format);
  args.a.cols -= 1;
  EXPECT_INVALID(quern_fp4_gemm_run(plan, &args, scratch, bytes, &status), "a.cols");
  free(scratch);
  quern_packed_weights_destroy(packed);
  quern_fp4_gemm_destroy(plan);
}

C_API_GEMM_TEST_GATE_UP(fp4_gemm, quern_fp4_weights, kN, kK)
C_API_GEMM_TEST_NULL(fp4_gemm)

static void test_descs(quern_context* context) {
  quern_status status;
  quern_fp4_gemm_desc desc;
  quern_fp4_gemm* plan = NULL;
  CLEAR(desc);
  desc.format = 2;
  EXPECT_INVALID(quern_fp4_gemm_create(context, &desc, &plan, &status), "desc.format (2)");
  desc.format = -1;
  EXPECT_INVALID(quern_fp4_gemm_create(context, &desc, &plan, &status), "desc.format (-1)");
  desc.format = QUERN_MXFP4;
  desc.reserved = 1;
  EXPECT_INVALID(quern_fp4_gemm_create(context, &desc, &plan, &status),
                 "desc.reserved (1) must be 0");
  desc.reserved = 0;
  desc.reserved2 = 1;
  EXPECT_INVALID(quern_fp4_gemm_create(context, &desc, &plan, &status),
                 "desc.reserved (1) must be 0");
}

int main(void) {
  quern_status status;
  quern_fp4_weights gate_up;
  quern_context* context = NULL;
  test_null();
  if (!OK(quern_context_create(NULL, &context, &status))) return 1;
  test_descs(context);
  if (machine_has(0)) {
    test_weights(context, QUERN_NVFP4, 0);
    test_weights(context, QUERN_NVFP4, 1);
    test_weights(context, QUERN_MXFP4, 0);
    gate_up = fill(QUERN_NVFP4, 0);
    test_gate_up(context, &gate_up);
  } else {
    printf("not run: fp4_gemm needs AVX-512 with VNNI\n");
  }
  quern_context_destroy(context);
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
