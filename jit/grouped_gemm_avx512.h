#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "jit/gemm_args.h"
#include "jit/gemm_config.h"
#include "jit/kernel.h"
#include "quern/status.h"

namespace quern::jit {

/// s8 or bf16 rows times codes of 4 or 8 bits with a scale, and perhaps a zero point, for each
/// group of K. Argument struct: GemmArgs, with the fields of groups, and row_scale with s8 rows.
/// Rows are padded as the packed groups are; those of s8 have bytes 1 and 2 of each four exchanged.
struct GroupedGemmAvx512Config : GemmConfig {
  /// kU4, or with bf16 rows kE4M3, kE5M2 or kE2M1, which have no zero points (the default ones, of
  /// which nothing is left to subtract): packed panels, decoded in registers. Or what
  /// grouped_decode_avx512 makes of them: kU8 for s8 rows, kBF16 for bf16 rows. The bits of the
  /// result are the same.
  DType b = DType::kU4;
  GroupConfig groups;
  /// bf16 rows, which then come as f32: dot products are FMAs, with the bits of vdpbf16ps. For CPUs
  /// without that instruction or slow at it.
  bool fma = false;
  /// With fma and packed codes: 0, or the lines (1, 2, 4, of 8-bit codes also 8) of a tile of bf16
  /// rows. Sums are then those of tdpbf16ps: in each tile the even and the odd elements are summed
  /// apart from zero, and both are added to the group's sum. So an amx plan can have its few rows
  /// multiplied here. With 2 and 4 group_steps is a multiple of 4, with 8 of 8: tiles are counted
  /// in turns.
  int tile_lines = 0;
  /// 8-bit codes are looked up by AVX512-VBMI; without it by words.
  bool vbmi = true;

  auto operator<=>(const GroupedGemmAvx512Config&) const = default;
};

/// "grouped_gemm.avx512.s8u4bf16.mr1.nr4.pf16.epi=none.sf16.z8", with "novbmi.", "fma." and "tl4."
/// before "sf16"
std::string to_string(const GroupedGemmAvx512Config& config);
std::optional<GroupedGemmAvx512Config> parse_grouped_gemm_avx512(std::string_view name);

/// Null where the config is legal, else the rule it breaks.
const char* invalid(const GroupedGemmAvx512Config& config);

/// Vector registers a panel of the block takes beside its accumulators, and those that the block
/// takes whatever its size is.
struct GroupedRegisters {
  int panel = 1;
  int other = 1;
  int element = 1;  ///< accumulators of an element of the block
};
GroupedRegisters grouped_registers(const GroupedGemmAvx512Config& config);

Result<GeneratedCode> generate(const GroupedGemmAvx512Config& config);

}  // namespace quern::jit
