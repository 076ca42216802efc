#ifndef QUERN_C_BF16_GEMM_H
#define QUERN_C_BF16_GEMM_H

/* bf16_gemm. Conventions: quern/c_api.h. */

#include "quern/c/gemm.h"
#include "quern/c/packed_weights.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif

#endif /* QUERN_C_BF16_GEMM_H */
