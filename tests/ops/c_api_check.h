#ifndef QUERN_TESTS_OPS_C_API_CHECK_H
#define QUERN_TESTS_OPS_C_API_CHECK_H

/* What the programs that test the C API share. C99; every one of them uses every function, and
 * defines C_API_PROGRAM, its name in messages, first. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "quern/c_api.h"

static int failures = 0;

static void expect(int condition, const char* text, int line) {
  if (condition) return;
  ++failures;
  fprintf(stderr, "%s:%d: not so: %s\n", C_API_PROGRAM, line, text);
}
#define EXPECT(condition) expect((condition) != 0, #condition, __LINE__)

/* The call failed with this code, and its message holds this text. */
static void expect_error(int32_t got, int32_t code, const quern_status* status, const char* text,
                         int line) {
  char message[256];
  quern_status_message(status, message, sizeof message);
  if (got == code && status->code == code && strstr(message, text) != NULL) return;
  ++failures;
  fprintf(stderr, "%s:%d: code %d, expected %d; message \"%s\", expected \"%s\"\n", C_API_PROGRAM,
          line, (int)got, (int)code, message, text);
}
#define EXPECT_ERROR(call, code, text) expect_error((call), (code), &status, (text), __LINE__)
#define EXPECT_INVALID(call, text) EXPECT_ERROR(call, QUERN_INVALID_ARGUMENT, text)

static int ok(int32_t code, const quern_status* status, int line) {
  char message[256];
  if (code == QUERN_OK && status->code == QUERN_OK) return 1;
  ++failures;
  quern_status_message(status, message, sizeof message);
  fprintf(stderr, "%s:%d: %s\n", C_API_PROGRAM, line, message);
  return 0;
}
#define OK(call) ok((call), &status, __LINE__)

/* All zero but for its size: how every struct that is passed to the library begins. */
#define CLEAR(sized)                     \
  do {                                   \
    memset(&(sized), 0, sizeof(sized));  \
    (sized).struct_size = sizeof(sized); \
  } while (0)

static quern_matrix matrix(const void* data, int32_t dtype, int64_t rows, int64_t cols) {
  quern_matrix m;
  memset(&m, 0, sizeof m);
  m.data = data;
  m.dtype = dtype;
  m.rows = rows;
  m.cols = cols;
  return m;
}

static uint16_t bf16(float f) { /* of a number that fits */
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static int machine_has(int bf16_too) {
  quern_status status;
  quern_context* context = NULL;
  quern_isa_info isa;
  int has;
  CLEAR(isa);
  if (!OK(quern_context_create(NULL, &context, &status))) return 0;
  OK(quern_context_isa(context, &isa, &status));
  has = isa.usable >= QUERN_ISA_AVX512 && (!bf16_too || isa.avx512_bf16);
  quern_context_destroy(context);
  return has;
}

#endif /* QUERN_TESTS_OPS_C_API_CHECK_H */
