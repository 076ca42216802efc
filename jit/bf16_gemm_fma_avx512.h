#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "jit/gemm_args.h"
#include "jit/gemm_config.h"
#include "jit/kernel.h"
#include "quern/status.h"

namespace quern::jit {

/// The products of bf16_gemm.avx512 with the same bits, without vdpbf16ps: for CPUs that have no
/// AVX512-BF16, and for those whose vdpbf16ps is slower than two FMAs. A is the f32 copy of bf16
/// rows, zero-padded to a multiple of two elements (of four with codes). Argument struct:
/// GemmArgs with `control`; col_scale only with codes or `scaled`.
struct Bf16GemmFmaAvx512Config : GemmConfig {
  DType b = DType::kBF16;  ///< kBF16, or codes: kU8 (w + 128) or kE4M3
  bool scaled = false;     ///< sums of bf16 weights are multiplied with col_scale too
  bool vbmi = true;        ///< as Bf16GemmAvx512Config has it

  auto operator<=>(const Bf16GemmFmaAvx512Config&) const = default;
};

/// "bf16_gemm_fma.avx512.f32bf16bf16.mr6.nr4.pf0.epi=none", then ".cs" (scaled), ".nobf16" and
/// ".poison" where set.
std::string to_string(const Bf16GemmFmaAvx512Config& config);
std::optional<Bf16GemmFmaAvx512Config> parse_bf16_gemm_fma_avx512(std::string_view name);

/// Null where the config is legal, else the rule it breaks.
const char* invalid(const Bf16GemmFmaAvx512Config& config);

Result<GeneratedCode> generate(const Bf16GemmFmaAvx512Config& config);

}  // namespace quern::jit
