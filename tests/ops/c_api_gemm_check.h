#ifndef QUERN_TESTS_OPS_C_API_GEMM_CHECK_H
#define QUERN_TESTS_OPS_C_API_GEMM_CHECK_H

/* Tests that ops whose functions differ in their names only share: C99 has no other way to write
 * quern_fp8_gemm_run and quern_fp4_gemm_run once. `op` is the part between quern_ and the verb. */
#include "tests/ops/c_api_check.h"

/* static void test_null(void): what each function says of null. */
#define C_API_GEMM_TEST_NULL(op)                                                                   \
  static void test_null(void) {                                                                    \
    quern_status status;                                                                           \
    quern_##op* plan = (quern_##op*)&status; /* anything but null */                               \
    quern_packed_weights* packed = (quern_packed_weights*)&status;                                 \
    char* text;                                                                                    \
    quern_##op##_destroy(NULL);                                                                    \
    EXPECT(quern_##op##_isa(NULL) == QUERN_ISA_NONE);                                              \
    EXPECT(quern_##op##_scratch_bytes(NULL, 5) == 0);                                              \
    EXPECT_INVALID(quern_##op##_create(NULL, NULL, &plan, &status), "context is null");            \
    EXPECT(plan == NULL);                                                                          \
    EXPECT_INVALID(quern_##op##_create(NULL, NULL, NULL, &status), "out is null");                 \
    EXPECT_INVALID(quern_##op##_pack(NULL, NULL, &packed, &status), "plan is null");               \
    EXPECT(packed == NULL);                                                                        \
    EXPECT_INVALID(quern_##op##_pack_gate_up(NULL, NULL, NULL, &packed, &status), "plan is null"); \
    EXPECT_INVALID(quern_##op##_run(NULL, NULL, NULL, 0, &status), "plan is null");                \
    text = quern_##op##_explain(NULL);                                                             \
    EXPECT(text != NULL && strstr(text, "plan is null") != NULL);                                  \
    quern_string_free(text);                                                                       \
  }

/* static void test_gate_up(...): a plan with two matrices of `columns` x `depth` refuses one. */
#define C_API_GEMM_TEST_GATE_UP(op, weights_type, columns, depth)                       \
  static void test_gate_up(quern_context* context, const weights_type* weights) {       \
    quern_status status;                                                                \
    quern_##op##_desc desc;                                                             \
    quern_##op* plan = NULL;                                                            \
    quern_packed_weights* packed = NULL;                                                \
    CLEAR(desc);                                                                        \
    desc.n = columns;                                                                   \
    desc.k = depth;                                                                     \
    desc.activation = QUERN_ACTIVATION_SILU_MUL;                                        \
    if (!OK(quern_##op##_create(context, &desc, &plan, &status))) return;               \
    EXPECT_INVALID(quern_##op##_pack(plan, weights, &packed, &status), "pack_gate_up"); \
    EXPECT_INVALID(quern_##op##_pack_gate_up(plan, weights, NULL, &packed, &status),    \
                   "up is null");                                                       \
    OK(quern_##op##_pack_gate_up(plan, weights, weights, &packed, &status));            \
    quern_packed_weights_destroy(packed);                                               \
    quern_##op##_destroy(plan);                                                         \
  }

#endif /* QUERN_TESTS_OPS_C_API_GEMM_CHECK_H */
