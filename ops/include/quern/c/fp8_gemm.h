#ifndef QUERN_C_FP8_GEMM_H
#define QUERN_C_FP8_GEMM_H

/* fp8_gemm. Conventions: quern/c_api.h. */

#include "quern/c/gemm.h"
#include "quern/c/packed_weights.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quern_fp8_gemm quern_fp8_gemm;

typedef struct quern_fp8_gemm_desc {
  size_t struct_size;
  int64_t n;
  int64_t k;
  /* Columns of C and of K that share a scale; 0 or -1: all of them. A cleared desc thus has one
     scale for the whole matrix, where the C++ desc has blocks of 128 x 128. */
  int64_t block_n;
  int64_t block_k;
  int32_t weights; /* QUERN_E4M3 (so is 0) or QUERN_E5M2 */
  int32_t c;       /* QUERN_F32 or QUERN_BF16 */
  int32_t bias;
  int32_t activation;
  int32_t residual;
  int32_t invariance;
  int32_t reserved;
  int32_t reserved2;
} quern_fp8_gemm_desc;

typedef struct quern_fp8_weights {
  quern_matrix codes; /* [n, k] of the desc's weights */
  /* QUERN_F32, QUERN_BF16 or QUERN_F16 [ceil(n / block_n), ceil(k / block_k)], 1 instead of either
     where the block is all. Never optional. */
  quern_matrix scale;
} quern_fp8_weights;

typedef struct quern_fp8_gemm_args {
  size_t struct_size;
  quern_matrix a; /* QUERN_BF16 [M, k] */
  const quern_packed_weights* weights;
  quern_mutable_matrix c;
  quern_vector bias;
  quern_matrix residual; /* may be c itself */
} quern_fp8_gemm_args;

QUERN_API int32_t quern_fp8_gemm_create(const quern_context* context,
                                        const quern_fp8_gemm_desc* desc, quern_fp8_gemm** out,
                                        quern_status* status);
QUERN_API int32_t quern_fp8_gemm_pack(const quern_fp8_gemm* plan, const quern_fp8_weights* weights,
                                      quern_packed_weights** out, quern_status* status);
/* Each has a grid of scales of its own. */
QUERN_API int32_t quern_fp8_gemm_pack_gate_up(const quern_fp8_gemm* plan,
                                              const quern_fp8_weights* gate,
                                              const quern_fp8_weights* up,
                                              quern_packed_weights** out, quern_status* status);
QUERN_API size_t quern_fp8_gemm_scratch_bytes(const quern_fp8_gemm* plan, int64_t max_m);
QUERN_API int32_t quern_fp8_gemm_run(const quern_fp8_gemm* plan, const quern_fp8_gemm_args* args,
                                     void* scratch, size_t scratch_bytes, quern_status* status);
QUERN_API int32_t quern_fp8_gemm_isa(const quern_fp8_gemm* plan);
QUERN_API char* quern_fp8_gemm_explain(const quern_fp8_gemm* plan);
QUERN_API void quern_fp8_gemm_destroy(quern_fp8_gemm* plan);

#ifdef __cplusplus
}
#endif

#endif /* QUERN_C_FP8_GEMM_H */
