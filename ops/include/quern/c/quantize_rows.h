#ifndef QUERN_C_QUANTIZE_ROWS_H
#define QUERN_C_QUANTIZE_ROWS_H

/* quantize_rows. Conventions: quern/c_api.h. */

#include "quern/c/context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quern_quantize_rows quern_quantize_rows;

typedef struct quern_quantize_rows_desc {
  size_t struct_size;
  int64_t k;
  int64_t group; /* columns a sum; 0: one sum a row */
  int32_t a;     /* QUERN_F32 or QUERN_BF16 */
  int32_t reserved;
} quern_quantize_rows_desc;

typedef struct quern_quantize_rows_args {
  size_t struct_size;
  quern_matrix a;
  quern_mutable_matrix q;
  quern_mutable_vector scale;
  quern_mutable_matrix sums; /* zero: not wanted */
} quern_quantize_rows_args;

QUERN_API int32_t quern_quantize_rows_create(const quern_context* context,
                                             const quern_quantize_rows_desc* desc,
                                             quern_quantize_rows** out, quern_status* status);
QUERN_API int32_t quern_quantize_rows_run(const quern_quantize_rows* plan,
                                          const quern_quantize_rows_args* args,
                                          quern_status* status);
QUERN_API int64_t quern_quantize_rows_groups(const quern_quantize_rows* plan); /* 0 for null */
/* The level of the kernel family that the plan uses; QUERN_ISA_NONE for null. */
QUERN_API int32_t quern_quantize_rows_isa(const quern_quantize_rows* plan);
QUERN_API char* quern_quantize_rows_explain(const quern_quantize_rows* plan);
QUERN_API void quern_quantize_rows_destroy(quern_quantize_rows* plan);

#ifdef __cplusplus
}
#endif

#endif /* QUERN_C_QUANTIZE_ROWS_H */
