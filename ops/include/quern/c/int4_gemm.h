#ifndef QUERN_C_INT4_GEMM_H
#define QUERN_C_INT4_GEMM_H

/* int4_gemm. Conventions: quern/c_api.h. */

#include "quern/c/gemm.h"
#include "quern/c/packed_weights.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  QUERN_INT4_ACTIVATIONS_BF16 = 0,      /* W4A16 */
  QUERN_INT4_ACTIVATIONS_DYNAMIC_S8 = 1 /* W4A8: A is quantized inside */
};
/* What is subtracted from a code. */
enum {
  QUERN_INT4_ZEROS_SYMMETRIC = 0, /* 8 */
  QUERN_INT4_ZEROS_INTEGER = 1,   /* a stored nibble plus zero_offset */
  QUERN_INT4_ZEROS_F32 = 2
};
/* Words of eight nibbles, as quern/int4_weights.h has them. */
enum {
  QUERN_INT4_STORAGE_GPTQ = 0,
  QUERN_INT4_STORAGE_AWQ = 1,
  QUERN_INT4_STORAGE_ROW_MAJOR = 2 /* compressed-tensors "pack-quantized" */
};

typedef struct quern_int4_gemm quern_int4_gemm;

typedef struct quern_int4_gemm_desc {
  size_t struct_size;
  int64_t n;
  int64_t k;
  /* Columns of K that share a scale; 0, as in a cleared desc, or -1: all of them. */
  int64_t group;
  int32_t zeros;       /* QUERN_INT4_ZEROS_... */
  int32_t scale;       /* QUERN_F32, QUERN_BF16, QUERN_F16 */
  int32_t act_order;   /* 1: the weights come with g_idx */
  int32_t activations; /* QUERN_INT4_ACTIVATIONS_... */
  int32_t c;           /* QUERN_F32 or QUERN_BF16 */
  int32_t bias;
  int32_t activation;
  int32_t residual;
  int32_t invariance;
  int32_t reserved;
} quern_int4_gemm_desc;

/* Shapes by storage: quern/int4_weights.h. */
typedef struct quern_int4_weights {
  int32_t storage;     /* QUERN_INT4_STORAGE_... */
  int32_t zero_offset; /* 1 for GPTQ v1, which stores the zero less one; else 0 */
  quern_matrix codes;  /* QUERN_S32 words */
  quern_matrix scale;  /* of the desc's scale */
  quern_matrix zero;   /* QUERN_S32 words or QUERN_F32; all zero where the desc says symmetric */
  quern_vector g_idx;  /* QUERN_S32 [k]; all zero without act_order */
} quern_int4_weights;

/* Called by the thread that packs, at times; must not call quern. */
typedef struct quern_pack_progress {
  void (*report)(void* user, int64_t done, int64_t total);
  void* user;
} quern_pack_progress;

typedef struct quern_int4_gemm_args {
  size_t struct_size;
  quern_matrix a; /* QUERN_BF16 [M, k] */
  const quern_packed_weights* weights;
  quern_mutable_matrix c;
  quern_vector bias;
  quern_matrix residual; /* may be c itself */
} quern_int4_gemm_args;

QUERN_API int32_t quern_int4_gemm_create(const quern_context* context,
                                         const quern_int4_gemm_desc* desc, quern_int4_gemm** out,
                                         quern_status* status);
/* progress may be null. */
QUERN_API int32_t quern_int4_gemm_pack(const quern_int4_gemm* plan,
                                       const quern_int4_weights* weights,
                                       const quern_pack_progress* progress,
                                       quern_packed_weights** out, quern_status* status);
/* With act_order both have the same g_idx. */
QUERN_API int32_t quern_int4_gemm_pack_gate_up(const quern_int4_gemm* plan,
                                               const quern_int4_weights* gate,
                                               const quern_int4_weights* up,
                                               const quern_pack_progress* progress,
                                               quern_packed_weights** out, quern_status* status);
QUERN_API size_t quern_int4_gemm_scratch_bytes(const quern_int4_gemm* plan, int64_t max_m);
QUERN_API int32_t quern_int4_gemm_run(const quern_int4_gemm* plan, const quern_int4_gemm_args* args,
                                      void* scratch, size_t scratch_bytes, quern_status* status);
QUERN_API int32_t quern_int4_gemm_isa(const quern_int4_gemm* plan);
QUERN_API char* quern_int4_gemm_explain(const quern_int4_gemm* plan);
QUERN_API void quern_int4_gemm_destroy(quern_int4_gemm* plan);

#ifdef __cplusplus
}
#endif

#endif /* QUERN_C_INT4_GEMM_H */
