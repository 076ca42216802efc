#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "jit/kernel.h"
#include "quern/dtype.h"
#include "quern/status.h"

namespace quern::jit {

/// Rows of bf16, f32 or s8 to s8 rows with scales and sums; formulas in quern/quantize_rows.h. s8
/// rows are copied and summed (their scale is the caller's and is not touched).
struct QuantizeRowsAvx512Config {
  DType a = DType::kBF16;  ///< kBF16, kF32 or kS8
  int pad = 1;  ///< each row of q is zero-filled to a multiple of this many bytes: 1, 4 or 64
  bool poison = false;
  /// Bytes 1 and 2 of each four are exchanged, as 4-bit weights want them (code_emitter.h): k and
  /// group are multiples of 4. Not with kS8.
  bool quads = false;

  auto operator<=>(const QuantizeRowsAvx512Config&) const = default;
};

/// Strides in bytes.
struct QuantizeRowsArgs {
  const void* a = nullptr;
  int64_t a_stride = 0;
  int64_t rows = 0;   ///< at least 1
  int64_t k = 0;      ///< columns, at least 0
  int64_t group = 0;  ///< columns a sum covers, at least 1 (k or more: one sum a row)
  int8_t* q = nullptr;
  int64_t q_stride = 0;
  float* scale = nullptr;   ///< [rows]; not read or written with s8
  int32_t* sums = nullptr;  ///< [rows] [sum_stride / 4]; null: none
  int64_t sum_stride = 0;
};

/// "quantize_rows.avx512.bf16s8.pad4", then ".quads" and ".poison" where set.
std::string to_string(const QuantizeRowsAvx512Config& config);
std::optional<QuantizeRowsAvx512Config> parse_quantize_rows_avx512(std::string_view name);
const char* invalid(const QuantizeRowsAvx512Config& config);
Result<GeneratedCode> generate(const QuantizeRowsAvx512Config& config);

}  // namespace quern::jit
