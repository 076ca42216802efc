#ifndef QUERN_C_API_H
#define QUERN_C_API_H

/* quern for programs that are not C++: C99, opaque handles, a thin shell over the classes of
 * quern/quern.h, which say what the operations mean. Only what is different here is described.
 *
 * Errors. A function that can fail returns a code, QUERN_OK (0) or another of quern/c/base.h, and
 * where `status` is not null leaves there what quern_status_message() makes a sentence of. No
 * exception comes out. A null handle or a null required argument is QUERN_INVALID_ARGUMENT.
 * Handles. *out is set to a new handle on success and to null on failure. Each is given back with
 *   its _destroy function, in any order (what a plan needs lives as long as the plan); destroying
 *   null does nothing. A handle may be used from any number of threads at once, but not while it is
 *   being destroyed.
 * Structs. Zero all of it, set struct_size to its sizeof, then the fields you need: zero is always
 *   a legal value. A later version may add fields at the end; a program compiled against this one
 *   goes on working, and a field that is set but unknown to the library is an error, not ignored.
 * Strings. `const char*` results are owned by the library or by the handle, and say so; `char*`
 *   results are yours, give them back to quern_string_free().
 * This header is all of quern/c/; programs include it and not its parts. */

#include "quern/c/base.h"
#include "quern/c/bf16_gemm.h"
#include "quern/c/bmm.h"
#include "quern/c/context.h"
#include "quern/c/fp4_gemm.h"
#include "quern/c/fp8_gemm.h"
#include "quern/c/gemm.h"
#include "quern/c/int4_gemm.h"
#include "quern/c/int8_gemm.h"
#include "quern/c/packed_weights.h"
#include "quern/c/quantize_rows.h"

#endif /* QUERN_C_API_H */
