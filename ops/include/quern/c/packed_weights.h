#ifndef QUERN_C_PACKED_WEIGHTS_H
#define QUERN_C_PACKED_WEIGHTS_H

/* Packed weights: from a plan's _pack function, or from a file. Conventions: quern/c_api.h. */

#include "quern/c/context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quern_packed_weights quern_packed_weights;

typedef struct quern_packed_weights_info {
  size_t struct_size;
  int64_t n;
  int64_t k;
  int64_t panel_bytes;
  uint64_t bytes;
  const void* data; /* lives as long as the weights */
  uint32_t layout;  /* quern::WeightLayout */
  uint32_t reserved;
  const char* layout_name; /* for ever */
  int64_t batch;           /* matrices of n by k; 1 but for those of bmm */
} quern_packed_weights_info;

QUERN_API int32_t quern_packed_weights_get_info(const quern_packed_weights* weights,
                                                quern_packed_weights_info* out,
                                                quern_status* status);
QUERN_API int32_t quern_packed_weights_save(const quern_packed_weights* weights, const char* path,
                                            quern_status* status);
/* verify: 1 reads the whole file and compares its checksum. */
QUERN_API int32_t quern_packed_weights_map(const char* path, int32_t verify,
                                           quern_packed_weights** out, quern_status* status);
/* Plans do not own weights: keep them as long as they are run with. */
QUERN_API void quern_packed_weights_destroy(quern_packed_weights* weights);

#ifdef __cplusplus
}
#endif

#endif /* QUERN_C_PACKED_WEIGHTS_H */
