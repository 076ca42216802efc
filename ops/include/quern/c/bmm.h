#ifndef QUERN_C_BMM_H
#define QUERN_C_BMM_H

/* bmm, batched GEMM: C[b] = A[b] * B[b]. Conventions: quern/c_api.h. */

#include "quern/c/gemm.h"
#include "quern/c/packed_weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What B is. */
enum {
  QUERN_BMM_BF16 = 0,     /* packed bf16 */
  QUERN_BMM_S8 = 1,       /* packed s8 with scales */
  QUERN_BMM_PLAIN_NK = 2, /* bf16 [batch, n, k] as it lies in memory */
  QUERN_BMM_PLAIN_KN = 3, /* bf16 [batch, k, n] */
  QUERN_BMM_E4M3 = 4      /* packed e4m3 with scales */
};
/* How the matrices that _pack reads are stored. */
enum { QUERN_BMM_ORDER_NK = 0, QUERN_BMM_ORDER_KN = 1 };

/* batch matrices [rows, cols], strides in elements. The two zeros differ: row_stride 0 means dense
 * (= cols), but batch_stride 0 does not: it means that all of them are the same matrix, and a dense
 * batch has to say rows * cols. A struct of zeros but for its extents is one matrix read batch
 * times (and refused for c). Heads of [M, H, D]: batch H, rows M, cols D, batch_stride D,
 * row_stride H * D. */
typedef struct quern_batch {
  const void* data;
  int32_t dtype;
  int32_t reserved;
  int64_t batch;
  int64_t rows;
  int64_t cols;
  int64_t batch_stride;
  int64_t row_stride;
} quern_batch;

typedef struct quern_mutable_batch {
  void* data;
  int32_t dtype;
  int32_t reserved;
  int64_t batch;
  int64_t rows;
  int64_t cols;
  int64_t batch_stride;
  int64_t row_stride;
} quern_mutable_batch;

typedef struct quern_bmm quern_bmm;

typedef struct quern_bmm_desc {
  size_t struct_size;
  int64_t n;
  int64_t k;
  int32_t b;          /* QUERN_BMM_... */
  int32_t c;          /* QUERN_F32 or QUERN_BF16 */
  int32_t invariance; /* QUERN_INVARIANCE_... */
  int32_t reserved;
} quern_bmm_desc;

typedef struct quern_bmm_weights {
  quern_batch values; /* QUERN_BF16 or QUERN_S8, as the plan's b says */
  quern_matrix scale; /* s8 only: QUERN_F32, QUERN_BF16 or QUERN_F16, [batch, n] or [batch, 1] */
  int32_t order;      /* QUERN_BMM_ORDER_... */
  int32_t reserved;
} quern_bmm_weights;

/* With c.batch 0 the weights may be of any batch. */
typedef struct quern_bmm_args {
  size_t struct_size;
  quern_batch a;                       /* QUERN_BF16 [batch, M, k] */
  const quern_packed_weights* weights; /* of c.batch matrices or of one; null for a plain B */
  quern_batch b;                       /* only a plain B */
  quern_mutable_batch c;               /* [batch, M, n]: must overlap nothing, itself included */
} quern_bmm_args;

QUERN_API int32_t quern_bmm_create(const quern_context* context, const quern_bmm_desc* desc,
                                   quern_bmm** out, quern_status* status);
QUERN_API int32_t quern_bmm_pack(const quern_bmm* plan, const quern_bmm_weights* weights,
                                 quern_packed_weights** out, quern_status* status);
/* Bytes that _run needs for up to max_m rows, whatever the batch; 0 is possible, also for a null
 * plan. */
QUERN_API size_t quern_bmm_scratch_bytes(const quern_bmm* plan, int64_t max_m);
QUERN_API int32_t quern_bmm_run(const quern_bmm* plan, const quern_bmm_args* args, void* scratch,
                                size_t scratch_bytes, quern_status* status);
QUERN_API int32_t quern_bmm_isa(const quern_bmm* plan);
/* Null only where memory is short. */
QUERN_API char* quern_bmm_explain(const quern_bmm* plan);
QUERN_API void quern_bmm_destroy(quern_bmm* plan);

#ifdef __cplusplus
}
#endif

#endif /* QUERN_C_BMM_H */
