#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "jit/gemm_args.h"
#include "jit/gemm_config.h"
#include "jit/kernel.h"
#include "quern/status.h"

namespace quern::jit {

/// s8 or bf16 rows times what grouped_decode_avx512 makes of 4-bit codes, u8 or bf16, with a scale,
/// and perhaps a zero point, for each group of K. Argument struct: GemmArgs, with the fields of
/// groups, and row_scale with s8 rows. Rows are as GroupedGemmAvx512Config has them.
struct GroupedGemmAmxConfig : GemmConfig {
  GroupConfig groups;
  /// Columns of K that a tile of s8 rows holds, 8..64 in eights (GroupLayout::tile_depth); one of
  /// bf16 rows holds half of them. A group is a whole number of tiles.
  int tile_depth = 64;

  auto operator<=>(const GroupedGemmAmxConfig&) const = default;
};

/// "grouped_gemm.amx.s8s8bf16.mr32.nr2.pf0.epi=none.t64.sf16.z8"
std::string to_string(const GroupedGemmAmxConfig& config);
std::optional<GroupedGemmAmxConfig> parse_grouped_gemm_amx(std::string_view name);

/// Null where the config is legal, else the rule it breaks.
const char* invalid(const GroupedGemmAmxConfig& config);

Result<GeneratedCode> generate(const GroupedGemmAmxConfig& config);

}  // namespace quern::jit
