#ifndef QUERN_C_INT8_GEMM_H
#define QUERN_C_INT8_GEMM_H

/* int8_gemm. Conventions: quern/c_api.h. */

#include "quern/c/gemm.h"
#include "quern/c/packed_weights.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#endif /* QUERN_C_INT8_GEMM_H */
