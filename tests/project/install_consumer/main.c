/* main.cc once more in C: the same product, the same output. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "quern/c_api.h"

enum { kM = 2, kN = 3, kK = 4 };

static int fail(const quern_status* status) {
  char message[256];
  quern_status_message(status, message, sizeof message);
  printf("quern: %s\n", message);
  return 1;
}

int main(void) {
  static const int8_t codes[kN * kK] = {1, 2, 3, 4, 0, 1, 0, 1, -128, 0, 0, 127};
  static const float scale[kN] = {1.0f, 0.5f, 0.25f};
  static const float a[kM * kK] = {1, 0, 0, 1, 0, 127, 0, 0};
  float c[kM * kN];
  quern_status status;
  quern_context* context = NULL;
  quern_int8_gemm_desc desc = {0}; /* zero: A and C are f32, A is quantized inside */
  quern_int8_gemm* plan = NULL;
  quern_int8_weights weights = {{0}, {0}};
  quern_packed_weights* packed = NULL;
  quern_int8_gemm_args args = {0};
  size_t bytes;
  void* scratch;
  int i;
  printf("quern %s\n", quern_version());
  if (quern_context_create(NULL, &context, &status) != QUERN_OK) return fail(&status);

  desc.struct_size = sizeof desc;
  desc.n = kN;
  desc.k = kK;
  if (quern_int8_gemm_create(context, &desc, &plan, &status) != QUERN_OK) return fail(&status);
  weights.codes.data = codes;
  weights.codes.dtype = QUERN_S8;
  weights.codes.rows = kN;
  weights.codes.cols = kK;
  weights.scale.data = scale;
  weights.scale.size = kN;
  if (quern_int8_gemm_pack(plan, &weights, &packed, &status) != QUERN_OK) return fail(&status);

  args.struct_size = sizeof args;
  args.a.data = a;
  args.a.rows = kM;
  args.a.cols = kK;
  args.weights = packed;
  args.c.data = c;
  args.c.rows = kM;
  args.c.cols = kN;
  bytes = quern_int8_gemm_scratch_bytes(plan, kM);
  scratch = malloc(bytes + 1);
  if (quern_int8_gemm_run(plan, &args, scratch, bytes, &status) != QUERN_OK) return fail(&status);
  for (i = 0; i < kM * kN; ++i) printf("%g%c", c[i], i % kN == kN - 1 ? '\n' : ' ');

  free(scratch);
  quern_packed_weights_destroy(packed);
  quern_int8_gemm_destroy(plan);
  quern_context_destroy(context);
  return 0;
}
