#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quern/dtype.h"
#include "quern/epilogue.h"
#include "quern/int4_weights.h"

namespace quern::jit {

/// The part of a GEMM kernel's Config that shapes what follows the last dot product.
struct GemmEpilogue {
  DType c = DType::kBF16;  ///< kBF16 or kF32
  bool bias = false;
  Activation activation = Activation::kNone;
  bool residual = false;

  auto operator<=>(const GemmEpilogue&) const = default;
};

/// What every GEMM micro-kernel's Config begins with; a family adds the fields of its own.
struct GemmConfig {
  int mr = 1;  ///< rows, 1..16; 16 or 32 with AMX: one or two tiles of rows
  int nr = 1;  ///< vectors of 16 packed columns, 1..4; even with silu_mul
  /// Lines of weights fetched ahead in a turn of four steps: 0; 4 * nr, the lines that the turn
  /// itself will read some turns later, one stream a panel; or 1, 2 or 4 consecutive lines of what
  /// a later call reads, to L2, or with 4 and at most two panels to L1. GemmArgs says where from.
  int prefetch = 0;
  bool poison = false;
  GemmEpilogue epilogue;
  /// AVX512-BF16 instructions may be used. Without them the same bits come from AVX-512 F, BW and
  /// DQ: dot products of bf16 as two FMAs on an f32 copy of A, conversions by integer arithmetic.
  bool bf16 = true;

  auto operator<=>(const GemmConfig&) const = default;
};

/// What kernels whose weights have a scale for each group of K add to their Config.
struct GroupConfig {
  DType a = DType::kBF16;     ///< of the rows: kS8 or kBF16
  DType scale = DType::kF16;  ///< kF16, kBF16 or kF32
  Int4Zeros zeros = Int4Zeros::kSymmetric;
  /// s8 rows and integer zeros: groups of more than kMostNarrowGroup columns, whose sums may exceed
  /// the integers that f32 holds.
  bool wide = false;
  /// Zero points are in the weights already, unless they are floats: always so with bf16 rows.
  bool subtracted = false;

  bool folds_nothing() const {
    return zeros != Int4Zeros::kF32 && (subtracted || a == DType::kBF16);
  }
  auto operator<=>(const GroupConfig&) const = default;
};
/// 16 * 127 * 8192 < 2^24.
constexpr int64_t kMostNarrowGroup = 8192;

/// Codes of packed weights in groups, and the 8-bit ones among them that are floats.
constexpr bool is_float8(DType b) {
  return b == DType::kE4M3 || b == DType::kE5M2;
}
constexpr bool is_packed(DType b) {
  return b == DType::kU4 || b == DType::kE2M1 || is_float8(b);
}

/// Vector registers that kernels on 8-bit floats keep for their tables.
constexpr int kFloat8Registers = 5;

/// Of kernels whose weights have no groups: null where b is kBF16, kU8 or kE4M3, and `vbmi` says
/// nothing of the first two.
const char* invalid_codes(DType b, bool vbmi);

/// The words of a kernel's name: "sf16", "z8" or "zu8" or "zf32", then "wide".
std::vector<std::string_view> group_words(const GroupConfig& config);
/// The inverse; nothing for words that are not these.
std::optional<GroupConfig> parse_group_words(DType a, const std::vector<std::string_view>& words);
/// Null where the config is legal, else the rule it breaks.
const char* invalid_groups(const GroupConfig& config);

/// A GEMM kernel's name, taken apart:
///   <family>.<a><b><c>.mr6.nr4.pf16.epi=bias+silu_mul[.<option>...][.nobf16][.poison]
/// for example "int8_gemm.avx512.s8u8bf16.mr6.nr4.pf16.epi=none.wide".
struct GemmName {
  std::string_view family;  ///< two words: "int8_gemm.avx512"
  DType a = DType::kBF16;
  DType b = DType::kBF16;
  GemmConfig config;                      ///< C's type is in its epilogue
  std::vector<std::string_view> options;  ///< words of the family's own, in its order

  bool has(std::string_view option) const;
};
/// The option of kernels that scale columns though their weights are no codes.
constexpr std::string_view kScaledWord = "cs";
/// The option of kernels that look up 8-bit floats without AVX512-VBMI.
constexpr std::string_view kNoVbmiWord = "novbmi";
std::string to_string(const GemmName& name);
/// Lenient about what follows the epilogue: a family's parse function compares what it understood,
/// written again, with the text.
std::optional<GemmName> parse_gemm_name(std::string_view text);

/// The rules every GEMM micro-kernel's Config keeps; `others` counts the vector registers its K
/// loop needs besides the mr * nr accumulators. Null where all hold, else the text of the broken
/// one.
const char* invalid_shape(const GemmConfig& config, int others);
/// The same for AMX families, whose accumulators are tiles.
const char* invalid_tiles(const GemmConfig& config);

}  // namespace quern::jit
