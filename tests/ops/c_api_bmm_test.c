/* bmm from C: heads of [M, H, D], every form of B, and what it refuses. Expected products are plain
 * C arithmetic on small integers, so exact. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define C_API_PROGRAM "c_api_bmm_test.c"
#include "quern/c_api.h"
#include "tests/ops/c_api_check.h"

enum { kH = 3, kM = 4, kN = 19, kK = 33 };

static float a_at(int h, int i, int k) { return (float)((h * 3 + i * 5 + k) % 9 - 4); }
static float b_at(int h, int j, int k) { return (float)((h + j * 2 + k * 3) % 7 - 3); }

static quern_batch batch(const void* data, int32_t dtype, int64_t rows, int64_t cols) {
  quern_batch b;
  memset(&b, 0, sizeof b);
  b.data = data;
  b.dtype = dtype;
  b.batch = kH;
  b.rows = rows;
  b.cols = cols;
  b.batch_stride = rows * cols;
  return b;
}

static uint16_t a_data[kM * kH * kK], b_data[kH * kN * kK];
static int8_t codes[kH * kN * kK];
static uint8_t floats[kH * kN * kK]; /* e4m3 */
static float c_data[kM * kH * kN];

/* Of -3 to 3. */
static uint8_t e4m3(int x) {
  static const uint8_t magnitudes[4] = {0x00, 0x38, 0x40, 0x44};
  return (uint8_t)(x < 0 ? magnitudes[-x] | 0x80 : magnitudes[x]);
}

/* B in the order that the plan wants it. */
static void fill(int kn) {
  int h, i, j, k;
  for (h = 0; h < kH; ++h) {
    for (i = 0; i < kM; ++i) {
      for (k = 0; k < kK; ++k) a_data[(i * kH + h) * kK + k] = bf16(a_at(h, i, k));
    }
    for (j = 0; j < kN; ++j) {
      for (k = 0; k < kK; ++k) {
        const int at = h * kN * kK + (kn ? k * kN + j : j * kK + k);
        b_data[at] = bf16(b_at(h, j, k));
        codes[at] = (int8_t)b_at(h, j, k);
        floats[at] = e4m3((int)b_at(h, j, k));
      }
    }
  }
  memset(c_data, 0xff, sizeof c_data);
}

static void expect_products(float scale) {
  int h, i, j, k;
  for (h = 0; h < kH; ++h) {
    for (i = 0; i < kM; ++i) {
      for (j = 0; j < kN; ++j) {
        float sum = 0;
        for (k = 0; k < kK; ++k) sum += a_at(h, i, k) * b_at(h, j, k);
        EXPECT(c_data[(i * kH + h) * kN + j] == sum * scale);
      }
    }
  }
}

static void test_operand(quern_context* context, int32_t b, int kn) {
  quern_status status;
  quern_bmm_desc desc;
  quern_bmm_args args;
  quern_bmm_weights weights;
  quern_bmm* plan = NULL;
  quern_packed_weights* packed = NULL;
  const float scale[kH] = {0.5f, 0.5f, 0.5f};
  const int scaled = b == QUERN_BMM_S8 || b == QUERN_BMM_E4M3;
  const int plain = b == QUERN_BMM_PLAIN_NK || b == QUERN_BMM_PLAIN_KN;
  char* text;
  size_t bytes;
  void* scratch;
  fill(kn);
  CLEAR(desc);
  desc.n = kN;
  desc.k = kK;
  desc.b = b;
  if (!OK(quern_bmm_create(context, &desc, &plan, &status))) return;
  EXPECT(quern_bmm_isa(plan) >= QUERN_ISA_AVX512);
  text = quern_bmm_explain(plan);
  EXPECT(text != NULL && strncmp(text, "bmm/n:19/k:33", 13) == 0);
  quern_string_free(text);

  memset(&weights, 0, sizeof weights);
  weights.values = batch(b == QUERN_BMM_S8     ? (const void*)codes
                         : b == QUERN_BMM_E4M3 ? (const void*)floats
                                               : (const void*)b_data,
                         b == QUERN_BMM_S8     ? QUERN_S8
                         : b == QUERN_BMM_E4M3 ? QUERN_E4M3
                                               : QUERN_BF16,
                         kn ? kK : kN, kn ? kN : kK);
  weights.order = kn ? QUERN_BMM_ORDER_KN : QUERN_BMM_ORDER_NK;
  if (scaled) {
    EXPECT_INVALID(quern_bmm_pack(plan, &weights, &packed, &status),
                   b == QUERN_BMM_S8 ? "w.scale is null, but w.values (s8) needs scales"
                                     : "w.scale is null, but w.values (e4m3) needs scales");
    weights.scale = matrix(scale, QUERN_F32, kH, 1);
  }
  if (plain) {
    EXPECT_INVALID(quern_bmm_pack(plan, &weights, &packed, &status), "nothing to pack");
  } else {
    quern_packed_weights_info info;
    if (!OK(quern_bmm_pack(plan, &weights, &packed, &status))) return;
    CLEAR(info);
    OK(quern_packed_weights_get_info(packed, &info, &status));
    EXPECT(info.batch == kH && info.n == kN && info.k == kK);
    info.struct_size -= sizeof info.batch; /* a program of before there were batches */
    info.batch = -1;
    OK(quern_packed_weights_get_info(packed, &info, &status));
    EXPECT(info.batch == -1 && info.n == kN);
  }

  CLEAR(args);
  args.a = batch(a_data, QUERN_BF16, kM, kK);
  args.a.batch_stride = kK;
  args.a.row_stride = kH * kK;
  args.weights = packed;
  if (plain) args.b = weights.values;
  args.c.data = c_data;
  args.c.dtype = QUERN_F32;
  args.c.batch = kH;
  args.c.rows = kM;
  args.c.cols = kN;
  args.c.batch_stride = kN;
  args.c.row_stride = kH * kN;
  bytes = quern_bmm_scratch_bytes(plan, kM);
  scratch = malloc(bytes + 1);
  if (OK(quern_bmm_run(plan, &args, scratch, bytes, &status))) {
    expect_products(scaled ? 0.5f : 1.0f);
  }
  args.a.batch_stride = -1;
  EXPECT_INVALID(quern_bmm_run(plan, &args, scratch, bytes, &status),
                 "a.batch_stride (-1) must not be negative");
  args.a.batch_stride = kK;
  args.a.reserved = 1;
  EXPECT_INVALID(quern_bmm_run(plan, &args, scratch, bytes, &status), "a.reserved (1) must be 0");
  args.a.reserved = 0;
  args.c.batch_stride = 0;
  EXPECT_INVALID(quern_bmm_run(plan, &args, scratch, bytes, &status),
                 "matrices of c must not overlap");
  args.struct_size = 1;
  EXPECT_INVALID(quern_bmm_run(plan, &args, scratch, bytes, &status), "args.struct_size (1)");
  free(scratch);
  quern_packed_weights_destroy(packed);
  quern_bmm_destroy(plan);
}

static void test_null(void) {
  quern_status status;
  quern_bmm* plan = (quern_bmm*)&status; /* anything but null */
  quern_packed_weights* packed = (quern_packed_weights*)&status;
  char* text;
  quern_bmm_destroy(NULL);
  EXPECT(quern_bmm_isa(NULL) == QUERN_ISA_NONE);
  EXPECT(quern_bmm_scratch_bytes(NULL, 5) == 0);
  EXPECT_INVALID(quern_bmm_create(NULL, NULL, &plan, &status), "context is null");
  EXPECT(plan == NULL);
  EXPECT_INVALID(quern_bmm_create(NULL, NULL, NULL, &status), "out is null");
  EXPECT_INVALID(quern_bmm_pack(NULL, NULL, &packed, &status), "plan is null");
  EXPECT(packed == NULL);
  EXPECT_INVALID(quern_bmm_run(NULL, NULL, NULL, 0, &status), "plan is null");
  text = quern_bmm_explain(NULL);
  EXPECT(text != NULL && strstr(text, "plan is null") != NULL);
  quern_string_free(text);
}

static void test_descs(quern_context* context) {
  quern_status status;
  quern_bmm_desc desc;
  quern_bmm* plan = NULL;
  CLEAR(desc);
  desc.b = 5;
  EXPECT_INVALID(quern_bmm_create(context, &desc, &plan, &status), "desc.b (5)");
  desc.b = 300;
  EXPECT_INVALID(quern_bmm_create(context, &desc, &plan, &status), "desc.b (300) is unknown");
  desc.b = 0;
  desc.c = QUERN_S8;
  EXPECT_INVALID(quern_bmm_create(context, &desc, &plan, &status), "desc.c (s8)");
  desc.c = 0;
  desc.reserved = 1;
  EXPECT_INVALID(quern_bmm_create(context, &desc, &plan, &status), "desc.reserved (1) must be 0");
}

int main(void) {
  quern_status status;
  quern_context* context = NULL;
  test_null();
  if (!OK(quern_context_create(NULL, &context, &status))) return 1;
  test_descs(context);
  if (machine_has(0)) {
    test_operand(context, QUERN_BMM_BF16, 0);
    test_operand(context, QUERN_BMM_BF16, 1);
    test_operand(context, QUERN_BMM_S8, 0);
    test_operand(context, QUERN_BMM_S8, 1);
    test_operand(context, QUERN_BMM_E4M3, 0);
    test_operand(context, QUERN_BMM_E4M3, 1);
    test_operand(context, QUERN_BMM_PLAIN_NK, 0);
    test_operand(context, QUERN_BMM_PLAIN_KN, 1);
  } else {
    printf("not run: bmm needs AVX-512 with VNNI\n");
  }
  quern_context_destroy(context);
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
