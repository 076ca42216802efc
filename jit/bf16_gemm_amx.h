#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "jit/gemm_args.h"
#include "jit/gemm_config.h"
#include "jit/kernel.h"
#include "quern/status.h"

namespace quern::jit {

/// bf16 activations times bf16 weights, or times u8 (w + 128) or e4m3 codes that are decoded
/// exactly to bf16 through scratch, with tdpbf16ps. Argument struct: GemmArgs; col_scale only with
/// codes or `scaled`.
///
/// The instruction sums the even and the odd depths of a tile apart and adds both to C last, so the
/// bits differ from those of vdpbf16ps; they do not depend on M, mr, nr or the cuts of K.
struct Bf16GemmAmxConfig : GemmConfig {  // mr 16 or 32
  DType b = DType::kBF16;                ///< kBF16, kU8 or kE4M3
  bool scaled = false;                   ///< sums of bf16 weights are multiplied with col_scale too
  bool vbmi = true;                      ///< as Bf16GemmAvx512Config has it

  auto operator<=>(const Bf16GemmAmxConfig&) const = default;
};

/// "bf16_gemm.amx.bf16bf16bf16.mr32.nr2.pf0.epi=none", then ".cs" (scaled), ".novbmi" and
/// ".poison" where set.
std::string to_string(const Bf16GemmAmxConfig& config);
std::optional<Bf16GemmAmxConfig> parse_bf16_gemm_amx(std::string_view name);

/// Null where the config is legal, else the rule it breaks.
const char* invalid(const Bf16GemmAmxConfig& config);

Result<GeneratedCode> generate(const Bf16GemmAmxConfig& config);

}  // namespace quern::jit
