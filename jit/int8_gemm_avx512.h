#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "jit/gemm_args.h"
#include "jit/gemm_config.h"
#include "jit/kernel.h"
#include "quern/status.h"

namespace quern::jit {

/// s8 activations times u8 weight codes (w + 128) with VNNI. Argument struct: GemmArgs, with
/// row_scale, row_sum and col_scale.
struct Int8GemmAvx512Config : GemmConfig {  // mr * nr + nr + 1 <= 32
  bool wide = false;  ///< sums over more than 131,071 products: partial sums in s64

  auto operator<=>(const Int8GemmAvx512Config&) const = default;
};

/// "int8_gemm.avx512.s8u8bf16.mr6.nr4.pf16.epi=none", then ".wide" and ".poison" where set.
std::string to_string(const Int8GemmAvx512Config& config);
std::optional<Int8GemmAvx512Config> parse_int8_gemm_avx512(std::string_view name);

/// Null where the config is legal, else the rule it breaks.
const char* invalid(const Int8GemmAvx512Config& config);

Result<GeneratedCode> generate(const Int8GemmAvx512Config& config);

}  // namespace quern::jit
