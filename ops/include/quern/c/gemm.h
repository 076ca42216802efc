#ifndef QUERN_C_GEMM_H
#define QUERN_C_GEMM_H

/* What both GEMMs have: C[M, n] = epilogue(A[M, k] * W^T). Conventions: quern/c_api.h. */

#include "quern/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { QUERN_ACTIVATION_NONE = 0, QUERN_ACTIVATION_SILU_MUL = 1 };
enum { QUERN_INVARIANCE_STRICT = 0, QUERN_INVARIANCE_FASTEST = 1 };

#ifdef __cplusplus
}
#endif

#endif /* QUERN_C_GEMM_H */
