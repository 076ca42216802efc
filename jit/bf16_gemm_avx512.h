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
/// exactly to bf16 in registers, with AVX512-BF16 dot products. Argument struct: GemmArgs;
/// col_scale only with codes or `scaled`.
struct Bf16GemmAvx512Config : GemmConfig {
  DType b = DType::kBF16;  ///< kBF16, kU8 or kE4M3
  bool scaled = false;     ///< sums of bf16 weights are multiplied with col_scale too
  bool vbmi = true;        ///< e4m3 codes are looked up by AVX512-VBMI; without it by words

  auto operator<=>(const Bf16GemmAvx512Config&) const = default;
};

/// "bf16_gemm.avx512.bf16bf16bf16.mr6.nr4.pf0.epi=none", then ".cs" (scaled), ".novbmi" and
/// ".poison" where set.
std::string to_string(const Bf16GemmAvx512Config& config);
std::optional<Bf16GemmAvx512Config> parse_bf16_gemm_avx512(std::string_view name);

/// Null where the config is legal, else the rule it breaks.
const char* invalid(const Bf16GemmAvx512Config& config);

Result<GeneratedCode> generate(const Bf16GemmAvx512Config& config);

}  // namespace quern::jit
