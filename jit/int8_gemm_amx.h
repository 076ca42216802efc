#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "jit/gemm_args.h"
#include "jit/gemm_config.h"
#include "jit/kernel.h"
#include "quern/status.h"

namespace quern::jit {

/// s8 activations times u8 weight codes (w + 128) with tdpbsud, on the bytes that
/// Int8GemmAvx512Config reads. Sums are exact and the epilogue is the same sequence, so the results
/// are too, bit for bit. Argument struct: GemmArgs, with row_scale, row_sum and col_scale.
struct Int8GemmAmxConfig : GemmConfig {  // mr 16 or 32
  bool wide = false;                     ///< as in Int8GemmAvx512Config

  auto operator<=>(const Int8GemmAmxConfig&) const = default;
};

/// "int8_gemm.amx.s8u8bf16.mr32.nr2.pf2.epi=none", then ".wide" and ".poison" where set.
std::string to_string(const Int8GemmAmxConfig& config);
std::optional<Int8GemmAmxConfig> parse_int8_gemm_amx(std::string_view name);

/// Null where the config is legal, else the rule it breaks.
const char* invalid(const Int8GemmAmxConfig& config);

Result<GeneratedCode> generate(const Int8GemmAmxConfig& config);

}  // namespace quern::jit
