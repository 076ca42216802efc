#ifndef QUERN_C_BASE_H
#define QUERN_C_BASE_H

/* Version, status, element types and operands. Conventions: quern/c_api.h. */

#include <stddef.h>
#include <stdint.h>

#include "quern/export.h"
#include "quern/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version: of the library; QUERN_VERSION in quern/version.h is that of the header. */

/* "0.1.0". For ever. */
QUERN_API const char* quern_version(void);
/* major * 1000000 + minor * 1000 + patch */
QUERN_API int32_t quern_version_number(void);

/* ---- Status */

enum {
  QUERN_OK = 0,
  QUERN_INVALID_ARGUMENT = 1,
  QUERN_UNSUPPORTED = 2,
  QUERN_TOO_LARGE = 3,
  QUERN_OUT_OF_MEMORY = 4,
  QUERN_JIT_UNAVAILABLE = 5,
  QUERN_INTERNAL = 6,
  QUERN_IO_ERROR = 7,
  QUERN_BAD_FILE = 8
};

/* A value: copy it freely. Zeroed it means success. Uninitialised memory is fine as an output. */
typedef struct quern_status {
  int32_t code;
  int32_t reserved;
  uint64_t opaque[31];
} quern_status;

/* Writes at most size - 1 bytes of the message and a NUL (nothing where size is 0) and returns the
 * length of the whole message, as snprintf does. Null is success: "ok". */
QUERN_API size_t quern_status_message(const quern_status* status, char* buffer, size_t size);
/* "invalid argument", "unsupported", ... For ever. */
QUERN_API const char* quern_status_code_name(int32_t code);

QUERN_API void quern_string_free(char* string);

/* ---- Element types and operands */

enum {
  QUERN_F32 = 0,
  QUERN_BF16 = 1,
  QUERN_F16 = 2,
  QUERN_S8 = 3,
  QUERN_U8 = 4,
  QUERN_S32 = 5,
  QUERN_E4M3 = 7, /* 8-bit floats, as quern/dtype.h has them */
  QUERN_E5M2 = 8,
  QUERN_E8M0 = 10
};

/* Row-major and not owned. row_stride is in elements; 0 means dense (= cols). Where an operand is
 * not wanted, all of it is zero. */
typedef struct quern_matrix {
  const void* data;
  int32_t dtype;
  int32_t reserved;
  int64_t rows;
  int64_t cols;
  int64_t row_stride;
} quern_matrix;

typedef struct quern_mutable_matrix {
  void* data;
  int32_t dtype;
  int32_t reserved;
  int64_t rows;
  int64_t cols;
  int64_t row_stride;
} quern_mutable_matrix;

typedef struct quern_vector {
  const void* data;
  int32_t dtype;
  int32_t reserved;
  int64_t size;
} quern_vector;

typedef struct quern_mutable_vector {
  void* data;
  int32_t dtype;
  int32_t reserved;
  int64_t size;
} quern_mutable_vector;

#ifdef __cplusplus
}
#endif

#endif /* QUERN_C_BASE_H */
