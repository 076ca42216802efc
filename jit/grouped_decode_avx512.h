#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "jit/kernel.h"
#include "quern/dtype.h"
#include "quern/int4_weights.h"
#include "quern/status.h"

namespace quern::jit {

/// Panels of packed codes become panels that dot products read: once for all rows of A. A line of
/// 4-bit codes, eight depths of 16 columns, becomes two lines of u8 codes, each four depths in the
/// order 0, 2, 1, 3, or four lines of bf16 pairs of depths, q - z. A line of 8-bit codes, four
/// depths, becomes two lines of pairs.
struct GroupedDecodeAvx512Config {
  DType to = DType::kU8;                    ///< kU8, kS8 or kBF16
  Int4Zeros zeros = Int4Zeros::kSymmetric;  ///< what is subtracted; kBF16: floats are not (z = 0)
  bool poison = false;
  /// kU4; with bf16 and zeros at their default kE4M3, kE5M2 or kE2M1, of which nothing is
  /// subtracted.
  DType from = DType::kU4;
  bool vbmi = true;  ///< as GroupedGemmAvx512Config has it

  auto operator<=>(const GroupedDecodeAvx512Config&) const = default;
};

/// Strides in bytes. At least one panel, group and line.
struct GroupedDecodeArgs {
  const void* b = nullptr;  ///< first panel, at the first group of this call
  int64_t panel_stride = 0;
  int64_t panels = 0;
  int64_t groups = 0;
  int64_t group_lines = 0;
  const void* zero =
      nullptr;  ///< u8 [groups][16] of the first panel; where integer zeros are subtracted
  int64_t zero_stride = 0;
  void* to = nullptr;  ///< 64-byte aligned
  int64_t to_stride = 0;
  /// Lines are fetched so many bytes ahead; any value is legal.
  int64_t ahead = 0;
};

/// "grouped_decode.avx512.u4u8", "grouped_decode.avx512.u4s8.z8",
/// "grouped_decode.avx512.u4bf16.zu8", "grouped_decode.avx512.e4m3bf16", then ".novbmi" and
/// ".poison".
std::string to_string(const GroupedDecodeAvx512Config& config);
std::optional<GroupedDecodeAvx512Config> parse_grouped_decode_avx512(std::string_view name);
const char* invalid(const GroupedDecodeAvx512Config& config);
Result<GeneratedCode> generate(const GroupedDecodeAvx512Config& config);

}  // namespace quern::jit
