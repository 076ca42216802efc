#ifndef QUERN_C_FP4_GEMM_H
#define QUERN_C_FP4_GEMM_H

/* fp4_gemm. Conventions: quern/c_api.h. */

#include "quern/c/gemm.h"
#include "quern/c/packed_weights.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quern_fp4_gemm quern_fp4_gemm;

/* Which scales stand beside e2m1 codes. */
enum {
  QUERN_NVFP4 = 0, /* e4m3 for each 16 columns of K, and an f32 one for the matrix */
  QUERN_MXFP4 = 1  /* e8m0 for each 32 columns of K */
};
/* How a file means the scale of the whole matrix. */
enum {
  QUERN_FP4_MULTIPLIER = 0,
  QUERN_FP4_DIVISOR = 1 /* 1 / x, rounded to f32, multiplies */
};

typedef struct quern_fp4_gemm_desc {
  size_t struct_size;
  int64_t n;
  int64_t k;
  int32_t format; /* QUERN_NVFP4 or QUERN_MXFP4 */
  int32_t c;      /* QUERN_F32 or QUERN_BF16 */
  int32_t bias;
  int32_t activation;
  int32_t residual;
  int32_t invariance;
  int32_t reserved;
  int32_t reserved2;
} quern_fp4_gemm_desc;

typedef struct quern_fp4_weights {
  quern_matrix codes;  /* QUERN_U8 [n, ceil(k / 2)], the low nibble is the even column */
  quern_matrix scale;  /* QUERN_E4M3 [n, ceil(k / 16)] or QUERN_E8M0 [n, ceil(k / 32)] */
  quern_vector global; /* QUERN_NVFP4: QUERN_F32 [1]; QUERN_MXFP4: all of it zero */
  int32_t global_is;   /* QUERN_FP4_MULTIPLIER or QUERN_FP4_DIVISOR */
  int32_t reserved;
} quern_fp4_weights;

typedef struct quern_fp4_gemm_args {
  size_t struct_size;
  quern_matrix a; /* QUERN_BF16 [M, k] */
  const quern_packed_weights* weights;
  quern_mutable_matrix c;
  quern_vector bias;
  quern_matrix residual; /* may be c itself */
} quern_fp4_gemm_args;

QUERN_API int32_t quern_fp4_gemm_create(const quern_context* context,
                                        const quern_fp4_gemm_desc* desc, quern_fp4_gemm** out,
                                        quern_status* status);
QUERN_API int32_t quern_fp4_gemm_pack(const quern_fp4_gemm* plan, const quern_fp4_weights* weights,
                                      quern_packed_weights** out, quern_status* status);
/* Each keeps its own global scale. */
QUERN_API int32_t quern_fp4_gemm_pack_gate_up(const quern_fp4_gemm* plan,
                                              const quern_fp4_weights* gate,
                                              const quern_fp4_weights* up,
                                              quern_packed_weights** out, quern_status* status);
QUERN_API size_t quern_fp4_gemm_scratch_bytes(const quern_fp4_gemm* plan, int64_t max_m);
QUERN_API int32_t quern_fp4_gemm_run(const quern_fp4_gemm* plan, const quern_fp4_gemm_args* args,
                                     void* scratch, size_t scratch_bytes, quern_status* status);
QUERN_API int32_t quern_fp4_gemm_isa(const quern_fp4_gemm* plan);
QUERN_API char* quern_fp4_gemm_explain(const quern_fp4_gemm* plan);
QUERN_API void quern_fp4_gemm_destroy(quern_fp4_gemm* plan);

#ifdef __cplusplus
}
#endif

#endif /* QUERN_C_FP4_GEMM_H */
